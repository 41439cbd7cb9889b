"""A training configuration as users of Megatron or MindFormers say it: a transformer's dimensions and how it is spread.

Data only. It is what published measurements are about, where nobody wrote down a strategy per operator.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ms_symtensor.cost.runtime import Stored
from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.uniform.layout import ALL, Blocks, Selection, on_stage

Norm = Literal["rms_norm", "layer_norm"]
Position = Literal["rotary", "learned", "alibi"]
Framework = Literal["megatron", "mindspeed", "mindspore", "nanotron", "fsdp"]
"""Whose habits hold: what an optimizer level shards, what is overlapped, what the allocator keeps for itself.

"megatron" and "nanotron" keep whole weights at levels 1 and 2 (ZeRO), as does "mindspeed", which is Megatron with the kernels of
torch_npu on Ascend; "mindspore" shards weights at every level (see
program.settings.OptimizerLevel); "fsdp" is level 3 with gathers ahead of time.
"""
Precision = Literal["bfloat16", "float16", "float32", "float8"]


Loss = Literal["in_place", "copied", "torch"]
"""Where the gradient of the logits goes: Megatron's loss writes over them, that of its core 0.8 beside them, and PyTorch's
cross_entropy is a log_softmax and an nll_loss, each with a gradient of its own.
"""

MIXED = Stored()
"""Mixed precision with float32 main gradients."""


class AttentionKernel(Enum):
    """How softmax(q k^T) v is computed, and so whether its seq x seq scores are kept for the backward pass."""

    FLASH = "flash"  # FlashAttention-2, FlashAttentionScore
    FLASH1 = "flash1"  # FlashAttention-1: the same memory, slower
    FUSED_SOFTMAX = "fused_softmax"  # Megatron's scaled masked softmax in one kernel; scores are kept
    PLAIN = "plain"  # separate scale, mask, softmax and dropout; scores are kept


class Part(Enum):
    """What a selective recomputation computes again."""

    ATTENTION_CORE = Selection.ATTENTION_CORE  # between the projections (Megatron's selective)
    ACTIVATION_FUNCTION = Selection.ACTIVATION  # of the feed-forward
    NORM = Selection.NORM
    GATHERS = (
        Selection.COMMUNICATION
    )  # of the tokens that tensor ranks hold parts of, where these are kept (tensor_ranks)


class ImpossibleError(InputError):
    """Dimensions or degrees that no device could take: the message names them."""


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): widths of the low ranks and of the two halves of a head."""

    query_rank: int  # 0: queries are projected directly
    kv_rank: int
    rope_head_dim: int
    nope_head_dim: int
    value_head_dim: int


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward of all blocks but the first `dense_blocks`."""

    num_experts: int
    top_k: int
    intermediate_size: int  # of one expert
    shared_experts: int = 0  # of the same size, that see every token
    dense_blocks: int = 0
    imbalance: float = 1.0  # tokens of the fullest device over the mean

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.num_experts:
            raise ImpossibleError(f"top_k {self.top_k} of {self.num_experts} experts")


@dataclass(frozen=True)
class Transformer:
    """Dimensions of a decoder with its vocabulary; `gated`: the feed-forward has gate, up and down, not two products.

    `geglu`: the gate goes through GELU, for which no framework here has a kernel that is fused with the product behind it.
    `post_norms`: further norms behind attention and feed-forward; `logit_cap`: tanh keeps the logits as small (Gemma 2).
    `window`: a query meets so many keys at most, in every `window_period`-th block; 0: all before it.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    n_kv_heads: int
    intermediate_size: int  # of the dense feed-forward
    vocab_size: int
    head_dim: int = 0  # 0: hidden_size / num_heads
    gated: bool = True
    norm: Norm = "rms_norm"
    position: Position = "rotary"
    linear_bias: bool = False
    qkv_bias: bool = False
    tied_embeddings: bool = False
    dropout: bool = False  # masks of one byte per element are kept
    experts: Experts | None = None
    latent_attention: LatentAttention | None = None
    mtp_blocks: int = 0  # multi-token prediction: blocks with a head of their own (DeepSeek-V3)
    geglu: bool = False
    post_norms: bool = False
    logit_cap: float = 0.0
    window: int = 0
    window_period: int = 1

    def __post_init__(self) -> None:
        for name in ("hidden_size", "num_layers", "num_heads", "n_kv_heads", "intermediate_size", "vocab_size"):
            _positive(name, getattr(self, name))
        if not self.head_dim:
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_heads)
        if self.num_heads % self.n_kv_heads:
            raise ImpossibleError(f"{self.num_heads} heads do not divide by {self.n_kv_heads} key-value heads")


@dataclass(frozen=True)
class Recomputation:
    """What is recomputed in the backward pass.

    `blocks`: how many blocks as a whole; `parts`: in how many of the others which parts (`in_parts`).
    `shard_kept`: the kept inputs of recomputed blocks are cut over the tensor-parallel ranks (Megatron's
    distribute-saved-activations, MindFormers' recompute_slice_activation).
    """

    blocks: Blocks = (0,)
    parts: tuple[tuple[Part, Blocks], ...] = ()
    shard_kept: bool = False

    def on_stage(self, stage: int, blocks_of_stage: int) -> int:
        """How many of the blocks of `stage` are recomputed whole."""
        return on_stage(self.blocks, stage, blocks_of_stage)

    def part_on_stage(self, part: Part, stage: int, blocks_of_stage: int) -> int:
        """In how many of the other blocks of `stage` that part is recomputed."""
        others = blocks_of_stage - self.on_stage(stage, blocks_of_stage)
        return on_stage(dict(self.parts).get(part, (0,)), stage, others)


def in_parts(*parts: Part, blocks: Blocks = (ALL,)) -> tuple[tuple[Part, Blocks], ...]:
    """The same `blocks` for several parts."""
    return tuple((part, blocks) for part in parts)


NO_RECOMPUTATION = Recomputation()
FULL_RECOMPUTATION = Recomputation(blocks=(ALL,))
SELECTIVE_RECOMPUTATION = Recomputation(parts=in_parts(Part.ATTENTION_CORE))


@dataclass(frozen=True)
class Configuration:
    """One training step: a model, how devices share it, and what the framework does.

    device_num is the product of data, model (tensor), context and pipeline parallelism. The devices of a stage hold experts as
    expert_model_parallel (tensor ranks that cut one; 0: see `ranks_of_an_expert`) x expert_parallel x copies. `interleave`
    chunks of blocks per stage. `optimizer_weight_shard_size` -1: over all copies. `layers_on_stage` empty: as evenly as they
    divide, the first stages one more. `head_stage` holds final norm and head; -1: the last. ImpossibleError if something is
    not positive or does not divide.
    """

    model: Transformer
    seq_length: int
    data_parallel: int = 1
    model_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_model_parallel: int = 0
    pipeline_stages: int = 1
    interleave: int = 1
    micro_batch_size: int = 1
    micro_batch_num: int = 1
    layers_on_stage: tuple[int, ...] = ()
    head_stage: int = -1
    optimizer_level: OptimizerLevel = OptimizerLevel.NONE
    optimizer_weight_shard_size: int = -1
    recomputation: Recomputation = NO_RECOMPUTATION
    attention: AttentionKernel = AttentionKernel.FLASH
    fused_norm: bool = True
    precision: Precision = "bfloat16"
    stored: Precision = "float32"  # MindSpore: the type that weights, and the sums of their gradients, are stored in
    memory_limit_B: float = 0.0  # what the run was allowed to take of a device; 0: what the device has
    bytes_per_parameter: Stored = MIXED  # not for MindSpore, where programs say it
    framework: Framework = "megatron"
    overlap_gradients: bool = True  # gradient sums of data parallelism run under the backward pass
    overlap_weights: bool = True  # gathers of sharded weights run under the forward pass
    overlap_tensors: bool = (
        False  # tensor ranks' collectives of the backward pass run under its products where they can
    )
    whole_embedding: bool = False  # every tensor rank looks tokens up in the whole table
    padded_vocabulary: bool = True  # filled up such that every tensor rank has a multiple of 128 rows
    gathered_logits: bool = False  # tensor ranks gather the logits of the whole vocabulary for the loss
    exchanged_heads: bool = False  # context parallelism by AlltoAll (Ulysses), not by keys that go round a ring
    loss: Loss = "in_place"
    fused_layers: bool = True  # gates, rotations and biases are one kernel, or part of a product
    fused_gradient_sums: bool = True  # products add the gradients of their weights to those of the step themselves
    blocking_launches: bool = False  # the host waits for every kernel (CUDA_LAUNCH_BLOCKING=1)
    compiled: bool = False  # torch.compile or graph kernels: element-wise operators are fused

    def __post_init__(self) -> None:
        for name in ("seq_length", "data_parallel", "model_parallel", "context_parallel", "expert_parallel",
                     "pipeline_stages", "interleave", "micro_batch_size", "micro_batch_num"):  # fmt: skip
            _positive(name, getattr(self, name))
        if self.layers_on_stage:
            if len(self.layers_on_stage) != self.pipeline_stages or sum(self.layers_on_stage) != self.model.num_layers:
                raise ImpossibleError(
                    f"{self.layers_on_stage} does not put {self.model.num_layers} blocks on {self.pipeline_stages} stages"
                )
        elif self.pipeline_stages * self.interleave > self.model.num_layers:
            stages = self.pipeline_stages * self.interleave
            raise ImpossibleError(f"{self.model.num_layers} blocks are too few for {stages} pipeline stages")
        if not -1 <= self.head_stage < self.pipeline_stages:
            raise ImpossibleError(f"head_stage {self.head_stage} of {self.pipeline_stages} pipeline stages")
        for blocks in (self.recomputation.blocks, *dict(self.recomputation.parts).values()):
            if len(blocks) not in (1, self.pipeline_stages):
                raise ImpossibleError(f"recomputation of {len(blocks)} stages, not of {self.pipeline_stages}")
        if self.model.num_heads % self.model_parallel:
            raise ImpossibleError(f"{self.model.num_heads} heads do not divide by model_parallel {self.model_parallel}")
        experts = self.model.experts.num_experts if self.model.experts else 1
        if experts % self.expert_parallel:
            raise ImpossibleError(f"{experts} experts do not divide by expert_parallel {self.expert_parallel}")
        devices, cut = self.device_num // self.pipeline_stages, self.ranks_of_an_expert
        if self.model.experts and (self.model_parallel % cut or devices % (self.expert_parallel * cut)):
            raise ImpossibleError(
                f"expert_parallel {self.expert_parallel} x expert_model_parallel {cut} does not divide the {devices} devices"
                " of a stage"
            )

    @property
    def device_num(self) -> int:
        return self.data_parallel * self.model_parallel * self.context_parallel * self.pipeline_stages

    @property
    def ranks_of_an_expert(self) -> int:
        """Tensor ranks that cut every expert: all, as Megatron does, unless different experts lie on more ranks than there are
        copies of the data.
        """
        is_spread = self.data_parallel * self.context_parallel % self.expert_parallel
        return self.expert_model_parallel or (1 if is_spread else self.model_parallel)

    @property
    def global_batch_size(self) -> int:
        """Samples of one step."""
        return self.data_parallel * self.micro_batch_size * self.micro_batch_num

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.global_batch_size * self.seq_length

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Blocks on each stage, multi-token prediction not counted."""
        if self.layers_on_stage:
            return self.layers_on_stage
        each, more = divmod(self.model.num_layers, self.pipeline_stages)
        return tuple(each + (stage < more) for stage in range(self.pipeline_stages))


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise ImpossibleError(f"{name} is {value}; it must be at least 1")
