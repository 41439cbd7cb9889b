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

COMPUTE_DTYPES = ("bfloat16", "float16", "float32")
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
            raise InputError(f"{self.name}: {self.num_heads} heads do not divide by {self.n_kv_heads} key-value heads")
        if self.attention not in ("flash", "self"):
            raise InputError(f'{self.name}: unknown attention {self.attention!r}; known: "flash", "self"')
        if self.compute_dtype not in COMPUTE_DTYPES:
            known = ", ".join(COMPUTE_DTYPES)
            raise InputError(f"{self.name}: unknown compute_dtype {self.compute_dtype!r}; known: {known}")
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


# fmt: off
def _llama(
    name: str, *, hidden_size: int, num_layers: int, num_heads: int, n_kv_heads: int, intermediate_size: int,
    vocab_size: int, max_position_embeddings: int, rotary_base: float = 10000.0,
) -> TransformerConfig:
    return TransformerConfig(
        name=name, hidden_size=hidden_size, num_layers=num_layers, num_heads=num_heads, n_kv_heads=n_kv_heads,
        intermediate_size=intermediate_size, vocab_size=vocab_size, max_position_embeddings=max_position_embeddings,
        norm="rms_norm", norm_epsilon=1e-5, activation="swiglu", position="rotary", rotary_base=rotary_base,
        linear_bias=False, qkv_bias=False, tied_embeddings=False,
    )


_PUBLISHED = (
    # https://huggingface.co/meta-llama/Llama-2-7b-hf config.json
    _llama(
        "llama2_7b", hidden_size=4096, num_layers=32, num_heads=32, n_kv_heads=32, intermediate_size=11008,
        vocab_size=32000, max_position_embeddings=4096,
    ),
    # https://huggingface.co/meta-llama/Llama-2-13b-hf config.json
    _llama(
        "llama2_13b", hidden_size=5120, num_layers=40, num_heads=40, n_kv_heads=40, intermediate_size=13824,
        vocab_size=32000, max_position_embeddings=4096,
    ),
    # https://huggingface.co/meta-llama/Meta-Llama-3-8B config.json
    _llama(
        "llama3_8b", hidden_size=4096, num_layers=32, num_heads=32, n_kv_heads=8, intermediate_size=14336,
        vocab_size=128256, max_position_embeddings=8192, rotary_base=500000.0,
    ),
    # https://huggingface.co/openai-community/gpt2-xl config.json
    TransformerConfig(
        name="gpt2_xl", hidden_size=1600, num_layers=48, num_heads=25, n_kv_heads=25, intermediate_size=6400,
        vocab_size=50257, max_position_embeddings=1024, norm="layer_norm", norm_epsilon=1e-5, activation="gelu",
        position="learned", linear_bias=True, qkv_bias=True, tied_embeddings=True, seq_length=1024,
    ),
    # https://huggingface.co/google-bert/bert-large-uncased config.json
    TransformerConfig(
        name="bert_large", hidden_size=1024, num_layers=24, num_heads=16, n_kv_heads=16, intermediate_size=4096,
        vocab_size=30522, max_position_embeddings=512, norm="layer_norm", norm_epsilon=1e-12, activation="gelu",
        position="learned", linear_bias=True, qkv_bias=True, tied_embeddings=True, causal=False, type_vocab_size=2,
        seq_length=512,
    ),
)
# fmt: on
PUBLISHED: Mapping[str, TransformerConfig] = MappingProxyType({config.name: config for config in _PUBLISHED})


def dimensions_of(
    name: str,
    num_layers: int | None = None,
    seq_length: int | None = None,
    batch_size: int = 16,
    attention: Attention = "flash",
    compute_dtype: str = "bfloat16",
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
        compute_dtype=compute_dtype,
        lazy_inline=lazy_inline,
    )
