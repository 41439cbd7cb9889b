"""What a network of the zoo is made of, as data; MindSpore is not imported here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from model_zoo.phase import EIGHT_BITS, Phase
from ms_symtensor.errors import InputError

Norm = Literal["rms_norm", "layer_norm", "layer_norm_no_bias", "layer_norm_no_weight"]
Activation = Literal["swiglu", "geglu", "gelu", "relu", "relu2", "xielu"]
QkNorm = Literal["head", "projection", "rotated", "rotated_head"]
BranchNorm = Literal["before", "after", "both", "beside", "shared"]
Position = Literal["rotary", "learned", "distance"]
Attention = Literal["flash", "self"]

Branch = Literal["", "attention", "feed_forward"]
Scoring = Literal["softmax", "sigmoid"]
Dispatcher = Literal["alltoall", "alltoall_deredundancy"]
ExpertForm = Literal["capacity", "by_sample", "dropless"]

Network = Literal["RotaryDecoder", "SecondTokenDecoder", "LearnedPositionDecoder", "MaskedEncoder"]

COMPUTE_DTYPES = ("bfloat16", "float16", "float32")
MOST_LAYERS = 1024
"""More than the 1,000 of DeepNet (arXiv:2203.00555); planned in half a minute and 0.6 GB (empirical)."""
MOST_TOKENS = 1 << 34
"""Of a step; Llama 3 405B took at most 2^24 (arXiv:2407.21783, 3.4.1). Bytes are still numbers of 64 bits, and micro-batches
few enough to be listed (empirical)."""
DEFAULT_SEQ_LENGTH = 4096
LORA_ALPHA = 16.0
"""Of adapters whose rank alone is given: that of QLoRA (arXiv:2305.14314, appendix B.2). No size or time depends on it."""
INDEXER_EPSILON = 1e-6  # of the norm of its keys, whatever the file's is (transformers 5.24, DeepseekV32Indexer)
BIASED_DIMS = 16  # dims of a head that carry biases by distance; the cube unit takes as many at once
_CUBE_ROWS = 16  # rows of a fractal block of Ascend's matrix unit
DELTA_CHUNK = 64  # tokens whose steps of the delta rule are made at once: what transformers and its kernels take
COMPRESSED_MASK_SIZE = 2048  # FlashAttentionScore: the mask of sparse_mode 2 (causal) always has 2048 x 2048 elements


@dataclass(frozen=True)
class Experts:
    """A feed-forward of `number` experts, of which every token takes `per_token`.

    `load_imbalance`: how much more than its even share of a sample's tokens an expert has room for (MindFormers'
    capacity_factor); what comes on top is dropped. All experts do the work of that many tokens, whatever comes.
    `dropless`: an expert has room for all tokens of a sample, so that none is dropped. `by_sample`: samples are a dim of the
    experts' products, [batch, experts, places, hidden], as in MindFormers' Linear of several experts; else the places of all
    samples are joined.
    """

    number: int
    per_token: int
    intermediate_size: int
    shared_size: int = 0  # width of the expert that every token takes; 0: there is none
    scoring: Scoring = "softmax"
    corrected: bool = False  # softmax scores are corrected to balance the load too, as sigmoid scores always are
    groups: int = 1  # a token's experts come from the best `groups_per_token` of so many groups
    groups_per_token: int = 1
    scale: float = 1.0  # what the weights of a token's experts sum to, or are multiplied with
    normalised: bool = True  # these weights are made to sum to one first
    bias: bool = False  # of the scores and of every expert's products (gpt-oss)
    clamp: float = (
        0.0  # gpt-oss: gate and up are cut off there, and multiplied as `ExpertFeedForward` says; 0: they are not
    )
    clamp_slope: float = 1.702
    scales_input: bool = False  # weights multiply what the one expert of a token reads, not its result (Llama 4)
    shared_gate: bool = False  # the shared expert's result is weighted by a sigmoid of the token
    load_imbalance: float = 1.1  # MindFormers' default for its mixtures
    dropless: bool = False
    by_sample: bool = False
    dispatcher: Dispatcher = (
        "alltoall"  # how other software than MindSpore's graphs sends tokens, over nodes of `node_ranks`
    )
    node_ranks: int = 8
    safe_tokens: bool = False  # every rank sends one token more for each expert
    token_groups: int = (
        1  # parts of a sample that are routed for themselves (MindFormers: tensor-parallel ranks' tokens)
    )

    @property
    def is_corrected(self) -> bool:
        """Whether what chooses experts has a correction that their weights have not."""
        return self.corrected or (self.scoring == "sigmoid" and not self.scales_input)

    @property
    def chooses_apart(self) -> bool:
        """Whether experts are chosen by other numbers than their weights."""
        return self.is_corrected or self.groups > 1

    def places(self, tokens: int) -> int:
        """Places of one expert for `tokens` tokens of a group, in all groups of a sample a multiple of the cube unit's 16 rows;
        the first stays empty.
        """
        rows = _CUBE_ROWS // math.gcd(_CUBE_ROWS, self.token_groups)
        share = math.ceil(self.load_imbalance * self.per_token * tokens / self.number)
        wanted = tokens if self.dropless else share
        return -(-(min(wanted, tokens) + 1) // rows) * rows


@dataclass(frozen=True)
class LatentSizes:
    """Multi-head latent attention: the widths that queries, and keys with values, are projected from, and of a head its rotated
    part (of `head_dim`) and its value. `query_rank` 0: queries are projected from the hidden state (DeepSeek-V2-Lite).
    `pads_values`: zeros make a value as wide as a key (MindFormers' attention).
    """

    query_rank: int
    key_value_rank: int
    rotary_head_dim: int
    value_head_dim: int
    pads_values: bool = False


@dataclass(frozen=True)
class IndexerSizes:
    """What chooses the `keys` that a query of sparse attention sees: scores of `heads` heads of `head_dim` dims, of which as many
    are rotated as of the attention's own (DeepSeek-V3.2, arXiv:2512.02556, section 2.1).
    """

    heads: int
    head_dim: int
    keys: int


@dataclass(frozen=True)
class DeltaSizes:
    """Gated linear attention by the delta rule (arXiv:2412.06464): heads of keys, each read by as many heads of values, their
    sizes, and the tokens that the convolution before them sees. `largest_beta`: 2 lets what a step takes away change its sign.
    `channel_rank`: every channel of a key fades by itself (arXiv:2510.26692); this and what gates values, by a sigmoid, come of
    projections of such a width. 0: a head fades as a whole, and SiLU of the hidden state's projection gates it.
    """

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    kernel: int = 4
    largest_beta: float = 1.0
    norm_epsilon: float = 0.0  # of the norm behind it; 0: the network's
    chunk: int = DELTA_CHUNK  # tokens whose steps are made at once, of a shorter sample all
    channel_rank: int = 0
    state_dtype: str = ""  # in which an engine keeps the state of a request; none: the compute type

    @property
    def group_size(self) -> int:
        """Channels of a key head with its query and its values."""
        return 2 * self.key_size + self.group_values

    @property
    def group_values(self) -> int:
        """Those of its values alone."""
        return self.value_heads // self.key_heads * self.value_size


@dataclass(frozen=True)
class StateSpaceSizes:
    """Mamba-2's layer (arXiv:2405.21060): heads of values, in groups that share queries and keys, `state_size` wide, and the
    tokens that the convolution before them sees. `least_step`: no token's step is smaller.
    """

    heads: int
    head_size: int
    groups: int
    state_size: int
    kernel: int = 4
    conv_bias: bool = True
    bias: bool = False  # of the projections
    least_step: float = 0.0
    chunk: int = DELTA_CHUNK  # tokens that are done at once, of a shorter sample all

    @property
    def width(self) -> int:
        """Channels of the values of all heads."""
        return self.heads * self.head_size

    @property
    def key_times(self) -> int:
        """How often a group's queries and keys are repeated; those of a single group are broadcast."""
        return self.heads // self.groups if self.groups > 1 else 1


@dataclass(frozen=True)
class BlockKind:
    """What may differ from block to block.

    `window`: tokens that a query sees, itself among them; 0: all up to itself. `rotary_base` 0: the network's. `linear`: gated
    linear attention, or a state-space layer, in the place of attention. `shares_choice`: its queries see the keys that the last
    indexer before it chose, and it has none of its own (arXiv:2603.12201). `only`: the one branch that it has (Nemotron-H), none:
    it has both.
    """

    experts: bool = False
    window: int = 0
    rotary: bool = True
    rotary_base: float = 0.0
    linear: bool = False
    shares_choice: bool = False
    only: Branch = ""


@dataclass(frozen=True)
class Lora:
    """Low-rank adaptation (Hu et al. 2021) of every linear layer: y = x Wᵀ + (alpha / rank) (x Aᵀ) Bᵀ, no dropout.

    What is frozen is stored in the compute type, since no optimizer adds small numbers to it; norms stay as they are.
    `trains_vocabulary`: the embedding and the output table are trained in full, as in Qwen's recipe.
    """

    rank: int
    alpha: float
    trains_vocabulary: bool


@dataclass(frozen=True)
class TransformerConfig:
    """A dense transformer with its training loss.

    Decoders (`causal`) predict the next token; encoders predict masked tokens and, like BERT, normalise after each
    residual sum, embed token types and transform the hidden state once more before the vocabulary.
    `batch_size` is global: what all devices together take in one forward pass.
    """

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    n_kv_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    norm: Norm
    norm_epsilon: float
    activation: Activation
    position: Position
    linear_bias: bool
    qkv_bias: bool
    tied_embeddings: bool
    causal: bool = True
    type_vocab_size: int = 0
    output_bias: bool = False  # of attention's output; `linear_bias` gives it one too
    qk_norm: QkNorm | None = (
        None  # of query and key: every head or all heads together; a head without weight, or with one, once rotated
    )
    branch_norm: BranchNorm = (
        "before"  # where a decoder's branches are normalised; "beside", "shared": both read the block's input
    )
    branch_scale: float = 1.0  # what attention and feed-forward are multiplied with before they are added
    rotary_base: float = 10000.0
    rotated_size: int = 0  # dims of a head that are rotated, its first ones; 0: all
    head_dim: int = 0  # 0: hidden_size / num_heads
    score_size: int = 0  # scores are divided by its square root; 0: head_dim
    sinks: bool = False  # a learned number of every head stands beside the scores in the softmax (gpt-oss)
    embedding_norm: bool = False  # embeddings are normalised before the first block (Bloom)
    normed_head: bool = False  # rows of the vocabulary's table have length 1 in the head (Baichuan 2)
    head_bias: bool = False  # of the vocabulary's head; encoders have it
    score_cap: float = 0.0  # scores of attention s become cap * tanh(s / cap); 0: they stay
    logit_cap: float = 0.0  # so do the vocabulary's
    logit_scale: float = 1.0  # what these are multiplied with
    embedding_scale: float = 1.0
    lora: Lora | None = None
    experts: Experts | None = None
    latent_attention: LatentSizes | None = None
    indexer: IndexerSizes | None = None  # frozen: what it chooses has no gradient
    delta: DeltaSizes | None = None  # of the blocks whose kind is `linear`
    state_space: StateSpaceSizes | None = None  # likewise, in place of `delta`
    attention_gate: bool = False  # a sigmoid of the token weights what attention's heads give (Qwen3-Next)
    second_token_weight: float = 0.0  # of the loss of the token after the next; 0: it is not predicted
    dense_layers: int = 0  # so many blocks before the first one with experts
    kinds: tuple[BlockKind, ...] = ()  # of every block; none: they differ by `dense_layers` alone
    seq_length: int = DEFAULT_SEQ_LENGTH
    batch_size: int = 16
    attention: Attention = "flash"
    compute_dtype: str = "bfloat16"
    param_dtype: str = "float32"
    lazy_inline: bool = False
    phase: Phase | None = None  # of serving; None: training
    frozen: bool = False  # no weight trains, and no adapter beside it

    def __post_init__(self) -> None:
        if not self.head_dim:
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_heads)
        for field in ("num_layers", "seq_length", "batch_size", "num_heads", "n_kv_heads", "head_dim"):
            if getattr(self, field) < 1:
                raise InputError(f"{self.name}: {field} is {getattr(self, field)}; it must be at least 1")
        if self.num_layers > MOST_LAYERS:
            raise InputError(
                f"{self.name}: num_layers is {self.num_layers}; it must be at most {MOST_LAYERS}: the graph holds every block,"
                " and the deepest transformer that was published has 1,000 (DeepNet, arXiv:2203.00555)"
            )
        if self.batch_size * self.seq_length > MOST_TOKENS:
            raise InputError(
                f"{self.name}: batch_size {self.batch_size} times seq_length {self.seq_length} is more than {MOST_TOKENS}"
                " tokens of a step: give a smaller one"
            )
        if self.num_heads % self.n_kv_heads:
            raise InputError(f"{self.name}: {self.num_heads} heads do not divide by {self.n_kv_heads} key-value heads")
        if self.experts is not None and self.seq_length % self.experts.token_groups:
            raise InputError(
                f"{self.name}: {self.seq_length} tokens of a sample do not divide by token_groups {self.experts.token_groups}"
            )
        if self.kinds and len(self.kinds) != self.num_layers:
            raise InputError(f"{self.name} has {len(self.kinds)} kinds of blocks for {self.num_layers} layers")
        if self.experts is not None and self.experts.scales_input and self.experts.per_token > 1:
            raise InputError(
                f"{self.name}: weights multiply what experts read where a token has one expert: give num_experts_per_tok = 1"
            )
        if self.experts is not None and self.experts.scales_input and self.experts.bias:
            raise InputError(f"{self.name}: experts whose input is weighted have no biases")
        if self.experts is not None and not self.is_gated and (self.experts.bias or self.experts.clamp):
            raise InputError(f"{self.name}: experts without a gate have no biases, and no limit of what they multiply")
        if any(kind.only for kind in self.kinds) and (
            not self.causal or self.branch_norm != "before" or self.branch_scale != 1.0
        ):
            raise InputError(
                f"{self.name}: blocks of one branch are a decoder's, with a norm before it and no scale behind it"
            )
        self._require_attention()
        self._require_delta()
        self._require_state_space()
        if self.compute_dtype not in COMPUTE_DTYPES:
            known = ", ".join(COMPUTE_DTYPES)
            raise InputError(f"{self.name}: unknown compute_dtype {self.compute_dtype!r}; known: {known}")
        if self.position == "learned" and self.seq_length > self.max_position_embeddings:
            raise InputError(
                f"{self.name} has {self.max_position_embeddings} learned positions, so seq_length {self.seq_length} is "
                f"too long; use at most {self.max_position_embeddings}"
            )

    def _require_attention(self) -> None:
        if (self.score_cap or self.sinks) and self.attention == "flash":
            raise InputError(
                f"{self.name} caps the scores of attention or has sinks, for which flash attention has no form:"
                " give --attention self"
            )
        if self.indexer is not None and not (
            self.latent_attention and self.latent_attention.query_rank and self.causal
        ):
            raise InputError(f"{self.name}: an indexer reads the narrow query of a decoder's latent attention")
        if self.passes_choice and (self.indexer is None or self.kinds[0].shares_choice):
            raise InputError(f"{self.name}: the first block has an indexer where others share its choice")
        if self.attention not in ("flash", "self"):
            raise InputError(f'{self.name}: unknown attention {self.attention!r}; known: "flash", "self"')
        if self.position == "distance" and (self.attention == "self" or self.latent_attention is not None):
            raise InputError(
                f"{self.name}: biases by distance (ALiBi) are dims of queries and keys, which flash attention sums: leave"
                " --attention out"
            )

    def _require_delta(self) -> None:
        delta = self.delta
        if delta is None:
            return
        if delta.value_heads % delta.key_heads:
            raise InputError(
                f"{self.name}: {delta.value_heads} value heads of linear attention do not divide by {delta.key_heads} key heads"
            )
        if delta.channel_rank and delta.value_heads != delta.key_heads:
            raise InputError(f"{self.name}: channels of keys fade by themselves where there are as many value heads")
        is_power = self.seq_length > 1 and not self.seq_length & (self.seq_length - 1)
        if not is_power and any(kind.linear for kind in self.kinds):
            raise InputError(
                f"{self.name}: seq_length is {self.seq_length}; gated linear attention takes 2, 4, 8 or another power of two, of"
                f" which it makes chunks of {DELTA_CHUNK} tokens"
            )

    def _require_state_space(self) -> None:
        sizes = self.state_space
        if sizes is None:
            return
        if sizes.heads % sizes.groups:
            raise InputError(
                f"{self.name}: {sizes.heads} heads of state-space layers do not divide by {sizes.groups} groups"
            )
        if self.seq_length % self.chunk_tokens and any(kind.linear for kind in self.kinds):
            raise InputError(
                f"{self.name}: seq_length is {self.seq_length}; state-space layers take up to {sizes.chunk} tokens, or a"
                f" multiple of {sizes.chunk}, of which they make chunks"
            )

    @property
    def key_groups(self) -> int:
        """Groups of heads in linear attention, or in a state-space layer, that share queries and keys."""
        if self.state_space is not None:
            return self.state_space.groups
        return self.delta.key_heads if self.delta is not None else 1

    @property
    def chunk_tokens(self) -> int:
        """Tokens of a chunk of linear attention, or of a state-space layer."""
        sizes = self.delta or self.state_space
        return min(sizes.chunk if sizes is not None else DELTA_CHUNK, self.seq_length)

    @property
    def is_gated(self) -> bool:
        """Whether a feed-forward multiplies what it projects up with a gate."""
        return self.activation in ("swiglu", "geglu")

    @property
    def is_hybrid(self) -> bool:
        """Whether it has state-space layers, or blocks of one branch alone."""
        return self.state_space is not None or any(kind.only for kind in self.kinds)

    @property
    def is_parallel(self) -> bool:
        """Whether the feed-forward reads what attention reads, not its sum."""
        return self.branch_norm in ("beside", "shared")

    def norms_branches(self, kind: BlockKind) -> tuple[bool, bool]:
        """Whether attention and feed-forward of a decoder's block are normalised before, and after. Those of a block of linear
        attention are before, where others are after (OLMo Hybrid).
        """
        is_after = self.branch_norm == "after" and not kind.linear
        return not is_after, is_after or self.branch_norm == "both"

    @property
    def network(self) -> Network:
        """The class in `model_zoo.network` that builds it."""
        if not self.causal:
            return "MaskedEncoder"
        if self.position == "learned":
            return "LearnedPositionDecoder"
        return "SecondTokenDecoder" if self.second_token_weight else "RotaryDecoder"

    @property
    def has_scales(self) -> bool:
        """Whether linear layers and experts are stored in 8 bits, with a scale for every output (a phase of serving)."""
        return self.phase is not None and self.phase.weights == EIGHT_BITS

    @property
    def routed_length(self) -> int:
        """Tokens of a sample that are routed together; in a phase of serving those of all requests."""
        if self.phase is not None:
            return self.batch_size * self.seq_length
        return self.seq_length // (self.experts.token_groups if self.experts is not None else 1)

    @property
    def routed_groups(self) -> int:
        """Groups of tokens that are routed apart."""
        return self.batch_size * self.seq_length // self.routed_length

    @property
    def rotary_size(self) -> int:
        """Dims of what is multiplied with the tables of the rotation; all but `rotated_size` of them stay as they are."""
        return self.head_dim if self.latent_attention is None else self.latent_attention.rotary_head_dim

    def kind(self, layer: int) -> BlockKind:
        """What block number `layer` is; a window that holds a whole sample is none."""
        if not self.kinds:
            return BlockKind(experts=self.experts is not None and layer >= self.dense_layers)
        kind = self.kinds[layer]
        return replace(kind, window=0) if kind.window >= self.seq_length else kind

    @property
    def second_token_kind(self) -> BlockKind:
        """That of the block which predicts the second token."""
        return BlockKind(experts=self.experts is not None)

    def of_kinds(self, kinds: Sequence[BlockKind]) -> "TransformerConfig":
        """The network of such blocks; without `kinds` of its own, those with experts come last."""
        if self.kinds:
            return replace(self, num_layers=len(kinds), kinds=tuple(kinds))
        dense = sum(not kind.experts for kind in kinds) if self.experts is not None else 0
        return replace(self, num_layers=len(kinds), dense_layers=dense)

    def with_layers(self, kept: Sequence[int]) -> "TransformerConfig":
        """The network of the blocks with these numbers alone."""
        return self.of_kinds([self.kinds[n] if self.kinds else self.kind(n) for n in kept])

    def has_experts(self, layer: int) -> bool:
        """Whether the feed-forward of block number `layer` is a mixture of experts."""
        return self.kind(layer).experts

    @property
    def trains_base(self) -> bool:
        """Whether linear layers and norms train themselves, and not only what adapts them."""
        return self.lora is None and not self.frozen

    @property
    def trains_vocabulary(self) -> bool:
        return self.lora is None or self.lora.trains_vocabulary

    @property
    def passes_choice(self) -> bool:
        """Whether blocks hand on which keys queries see."""
        return any(kind.shares_choice for kind in self.kinds)

    @property
    def of_indexer(self) -> "TransformerConfig":
        """The layers of the indexer: its heads, one key for all of them, a LayerNorm."""
        assert self.indexer is not None
        own = self.indexer
        return replace(
            self, num_heads=own.heads, n_kv_heads=1, head_dim=own.head_dim, rotated_size=self.rotary_size, norm="layer_norm",
            norm_epsilon=INDEXER_EPSILON, latent_attention=None, indexer=None, lora=None, frozen=True, kinds=(),
        )  # fmt: skip

    @property
    def kv_size(self) -> int:
        """Width of the key (and of the value) projection."""
        return self.n_kv_heads * self.head_dim

    @property
    def query_size(self) -> int:
        """Width of the query projection; equal to hidden_size in most networks."""
        return self.num_heads * self.head_dim
