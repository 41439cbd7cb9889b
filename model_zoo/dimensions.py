"""The published dimensions of the networks in the zoo, as data; MindSpore is not imported here."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from ms_symtensor.errors import InputError

Norm = Literal["rms_norm", "layer_norm"]
Activation = Literal["swiglu", "gelu"]
Position = Literal["rotary", "learned"]
Attention = Literal["flash", "self"]

Network = Literal["RotaryDecoder", "LearnedPositionDecoder", "MaskedEncoder"]

DEFAULT_SEQ_LENGTH = 4096
COMPRESSED_MASK_SIZE = 2048  # FlashAttentionScore: the mask of sparse_mode 2 (causal) always has 2048 x 2048 elements


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
    rotary_base: float = 10000.0
    head_dim: int = 0  # 0: hidden_size / num_heads
    seq_length: int = DEFAULT_SEQ_LENGTH
    batch_size: int = 16
    attention: Attention = "flash"
    compute_dtype: str = "bfloat16"
    param_dtype: str = "float32"
    lazy_inline: bool = False

    def __post_init__(self) -> None:
        if not self.head_dim:
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_heads)
        for field in ("num_layers", "seq_length", "batch_size", "num_heads", "n_kv_heads", "head_dim"):
            if getattr(self, field) < 1:
                raise InputError(f"{self.name}: {field} is {getattr(self, field)}; it must be at least 1")
        if self.num_heads % self.n_kv_heads:
            raise InputError(f"{self.name}: {self.num_heads} heads cannot share {self.n_kv_heads} key-value heads evenly")
        if self.attention not in ("flash", "self"):
            raise InputError(f'{self.name}: unknown attention {self.attention!r}; known: "flash", "self"')
        if self.position == "learned" and self.seq_length > self.max_position_embeddings:
            raise InputError(
                f"{self.name} has {self.max_position_embeddings} learned positions, so seq_length {self.seq_length} is "
                f"too long; use at most {self.max_position_embeddings}"
            )

    @property
    def network(self) -> Network:
        """The class in `model_zoo.network` that builds it."""
        if not self.causal:
            return "MaskedEncoder"
        return "RotaryDecoder" if self.position == "rotary" else "LearnedPositionDecoder"

    @property
    def kv_size(self) -> int:
        """Width of the key (and of the value) projection."""
        return self.n_kv_heads * self.head_dim

    @property
    def query_size(self) -> int:
        """Width of the query projection; equal to hidden_size in most networks."""
        return self.num_heads * self.head_dim


def _llama(name: str, hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, vocab: int,
           positions: int, base: float) -> TransformerConfig:  # fmt: skip
    return TransformerConfig(
        name=name, hidden_size=hidden, num_layers=layers, num_heads=heads, n_kv_heads=kv_heads,
        intermediate_size=intermediate, vocab_size=vocab, max_position_embeddings=positions, norm="rms_norm",
        norm_epsilon=1e-5, activation="swiglu", position="rotary", rotary_base=base, linear_bias=False, qkv_bias=False,
        tied_embeddings=False,
    )  # fmt: skip


_PUBLISHED = (
    # https://huggingface.co/meta-llama/Llama-2-7b-hf config.json
    _llama("llama2_7b", 4096, 32, 32, 32, 11008, 32000, 4096, 1e4),
    # https://huggingface.co/meta-llama/Llama-2-13b-hf config.json
    _llama("llama2_13b", 5120, 40, 40, 40, 13824, 32000, 4096, 1e4),
    # https://huggingface.co/meta-llama/Meta-Llama-3-8B config.json
    _llama("llama3_8b", 4096, 32, 32, 8, 14336, 128256, 8192, 5e5),
    # https://huggingface.co/openai-community/gpt2-xl config.json
    TransformerConfig(
        name="gpt2_xl", hidden_size=1600, num_layers=48, num_heads=25, n_kv_heads=25, intermediate_size=6400,
        vocab_size=50257, max_position_embeddings=1024, norm="layer_norm", norm_epsilon=1e-5, activation="gelu",
        position="learned", linear_bias=True, qkv_bias=True, tied_embeddings=True, seq_length=1024,
    ),  # fmt: skip
    # https://huggingface.co/google-bert/bert-large-uncased config.json
    TransformerConfig(
        name="bert_large", hidden_size=1024, num_layers=24, num_heads=16, n_kv_heads=16, intermediate_size=4096,
        vocab_size=30522, max_position_embeddings=512, norm="layer_norm", norm_epsilon=1e-12, activation="gelu",
        position="learned", linear_bias=True, qkv_bias=True, tied_embeddings=True, causal=False, type_vocab_size=2,
        seq_length=512,
    ),  # fmt: skip
)
PUBLISHED: Mapping[str, TransformerConfig] = MappingProxyType({config.name: config for config in _PUBLISHED})


def dimensions_of(
    name: str,
    num_layers: int | None = None,
    seq_length: int | None = None,
    batch_size: int = 16,
    attention: Attention = "flash",
    lazy_inline: bool = False,
) -> TransformerConfig:
    """The published network `name`, with the given number of layers (None: all), tokens per sample and global batch.

    `seq_length` None stands for 4096, or all learned positions where there are fewer. InputError if the name is
    unknown (the message lists the known ones) or a value does not fit the network.
    """
    if name not in PUBLISHED:
        raise InputError(f"unknown model {name!r}; known: {', '.join(PUBLISHED)}")
    config = PUBLISHED[name]
    return replace(
        config,
        num_layers=config.num_layers if num_layers is None else num_layers,
        seq_length=config.seq_length if seq_length is None else seq_length,
        batch_size=batch_size,
        attention=attention,
        lazy_inline=lazy_inline,
    )
