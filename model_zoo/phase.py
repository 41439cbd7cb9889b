"""The two phases of serving a decoder: a prompt's tokens at once (prefill), then a token of every request at a time (decode)."""

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from ms_symtensor.errors import InputError

if TYPE_CHECKING:
    from model_zoo.config import TransformerConfig

NAMES = ("prefill", "decode")
EIGHT_BITS = "int8"


@dataclass(frozen=True)
class Phase:
    """A pass of one phase with a paged cache of keys and values, `cache_blocks` blocks of `block_tokens` tokens.

    Of a request the cache holds up to `request_blocks` blocks. `first`, `last`: whether this stage of a pipeline takes ids, and
    whether it gives logits; others take and give hidden states [tokens, hidden]. `weights`: "int8" where linear layers and
    experts are stored so, with a scale for every output, by which the product is multiplied; "": in the compute type.
    """

    name: str
    cache_blocks: int
    block_tokens: int
    request_blocks: int
    first: bool = True
    last: bool = True
    weights: str = ""

    def __post_init__(self) -> None:
        sizes = (self.cache_blocks, self.block_tokens, self.request_blocks)
        if self.name not in NAMES or min(sizes) < 1 or self.weights not in ("", EIGHT_BITS):
            raise InputError(f"phase {self.name!r} with sizes {sizes}: give prefill or decode, and sizes of at least 1")

    @property
    def is_decode(self) -> bool:
        return self.name == "decode"

    @property
    def request_tokens(self) -> int:
        """The most tokens of a request: so many positions are rotated."""
        return self.request_blocks * self.block_tokens

    @property
    def text(self) -> str:
        """What `of_text` reads."""
        return json.dumps(asdict(self))


def of_text(text: str) -> Phase:
    """The phase that a plan's source has. InputError for another text."""
    try:
        data = json.loads(text)
        known = {field.name: field.type for field in fields(Phase)}
        right = {name: type(value).__name__ for name, value in data.items()}
        if any(right[name] != getattr(kind, "__name__", kind) for name, kind in known.items()):
            raise TypeError("values of other types")
        return Phase(**data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"the plan's source has a phase that is none ({error}): serve again") from error


def why_no_phase(config: "TransformerConfig") -> str:
    """Why the zoo has no networks of the phases of `config`; empty if it has."""
    kinds = [config.kind(layer) for layer in range(config.num_layers)]
    reasons = {
        "it is an encoder": not config.causal,
        "it has adapters": config.lora is not None,
        "its scores are biased by distance": config.position == "distance",
        "its positions are learned": config.position != "rotary",
        "its embeddings or the head's table are normalised": config.embedding_norm or config.normed_head,
        "some layers do not rotate": not all(kind.rotary for kind in kinds),
        "layers have a window": any(kind.window for kind in kinds),
        "its attention has sinks, or a cap of scores": config.sinks or bool(config.score_cap),
        "it normalises what is rotated": config.qk_norm in ("rotated", "rotated_head"),
        "its attention stands beside the feed-forward": config.is_parallel,
        "its branches are scaled": config.branch_scale != 1.0,
        "layers rotate differently": len({kind.rotary_base for kind in kinds}) > 1,
        "no operator of MindSpore's parallel modes reads the keys alone that an indexer chooses": config.indexer
        is not None,
        "its linear attention takes prompts of a power of two tokens, and leaves no state behind them": config.delta
        is not None,
        "its state-space layers leave no state behind them": config.is_hybrid,
        "gates weight what its attention gives": config.attention_gate,
        "its latent attention has biases": config.latent_attention is not None and config.linear_bias,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
