"""A network's dims as one line of text, which a plan keeps, and back."""

import json
from dataclasses import MISSING, fields
from typing import Any

from model_zoo.config import (
    DEFAULT_SEQ_LENGTH,
    BlockKind,
    DeltaSizes,
    Experts,
    IndexerSizes,
    LatentSizes,
    Lora,
    StateSpaceSizes,
    TransformerConfig,
)
from ms_symtensor.errors import InputError

_PARTS = {
    "experts": Experts, "latent_attention": LatentSizes, "indexer": IndexerSizes, "delta": DeltaSizes, "lora": Lora,
    "state_space": StateSpaceSizes,
}  # fmt: skip
_APART = ("name", "seq_length", "batch_size", "attention", "compute_dtype", "param_dtype", "lazy_inline", "phase")
"""What a plan's source says by itself."""


def text_of(config: TransformerConfig) -> str:
    """What differs from the defaults of `TransformerConfig`, as JSON."""
    return json.dumps({name: value for name, value in _own(config).items() if name not in _APART})


def config_of(name: str, text: str) -> TransformerConfig:
    """The network that `text_of` wrote, with its default sizes of a step.

    Errors: InputError for another text.
    """
    try:
        data = json.loads(text)
        parts = {part: kind(**data.pop(part)) for part, kind in _PARTS.items() if part in data}
        kinds = tuple(BlockKind(**kind) for kind in data.pop("kinds", ()))
        data["attention"] = "self" if data.get("score_cap") or data.get("sinks") else "flash"
        if data.get("position") == "learned":
            data["seq_length"] = min(DEFAULT_SEQ_LENGTH, data["max_position_embeddings"])
        return TransformerConfig(name=name, **data, **parts, kinds=kinds)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"the plan's source has dims of {name} that are none ({error}): plan again") from error


def _own(of: Any) -> dict[str, Any]:
    """The fields of a record that have not their defaults, records in it the same way."""
    found: dict[str, Any] = {}
    for field in fields(of):
        value = getattr(of, field.name)
        if field.default is MISSING or value != field.default:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _own(value) if hasattr(value, "__dataclass_fields__") else value
