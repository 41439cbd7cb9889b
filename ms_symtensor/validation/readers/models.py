"""A network from the columns that tables of many models share."""

from typing import Any

from model_zoo.config import TransformerConfig
from ms_symtensor.validation.configuration import CAPACITY_FACTOR, mixture
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers.common import must_be_given
from ms_symtensor.validation.readers.families import Family, family_of, model_like
from ms_symtensor.validation.readers.published import published_model
from ms_symtensor.validation.table import Row

DIMENSIONS = ("hidden", "layers", "heads", "ffn", "vocab", "experts", "topk")


def transformer_of(
    row: Row, name: str, kv_column: str = "kv_heads", imbalance: float = CAPACITY_FACTOR
) -> TransformerConfig:
    """The model in `row`, called `name`: its columns where they are filled, its family's facts elsewhere.

    An empty kv column means as many as heads. Empty widths are those of the published model of that name, if it is as wide; else
    an empty ffn is 4 x hidden (ungated) or Llama's 8/3, rounded up to 256.
    """
    for column in ("hidden", "layers", "heads"):
        if not row.text(column):
            raise UnusableRowError("the model's dimensions are not given")
    hidden, heads = row.count("hidden"), row.count("heads")
    family = family_of(name, hidden)
    published = _published(name, hidden, heads)
    ffn = row.optional_count("ffn") or (published.intermediate_size if published else None)
    vocabulary = row.optional_count("vocab") or family.vocab_size
    if not vocabulary:
        raise UnusableRowError("the vocabulary is not given")
    kv_heads = row.optional_count(kv_column) or heads
    width = ffn or default_ffn(hidden, family.facts.get("activation") != "gelu")
    experts = _experts(row, family, published, ffn, imbalance)
    return model_like(name, hidden, row.count("layers"), heads, kv_heads, width, vocabulary, **experts)


def _experts(
    row: Row, family: Family, published: TransformerConfig | None, ffn: int | None, imbalance: float
) -> dict[str, Any]:
    """Experts, and how many blocks before them have none, as `transformer` takes them."""
    number = row.optional_count("experts") or 1
    if number == 1:
        return {}
    must_be_given(row, "topk")
    known = published.experts if published else None
    if published and known and ffn not in (published.intermediate_size, known.intermediate_size):
        known = None
    width = _optional(row, "moe_ffn") or (known.intermediate_size if known else ffn)
    if width is None:
        raise UnusableRowError("the experts' width is not given")
    beside = row.optional_number("shared_experts") if "shared_experts" in row.cells else None
    if beside is None:
        beside = known.shared_size // known.intermediate_size if known else family.shared_experts
    found = {"experts": mixture(number, row.count("topk"), width, int(beside), imbalance)}
    return found | ({"dense_layers": published.dense_layers} if published and known else {})


def _published(name: str, hidden: int, heads: int) -> TransformerConfig | None:
    """The published model called `name`, unless that has other widths."""
    try:
        found = published_model(name)
    except UnusableRowError:
        return None
    return found if (found.hidden_size, found.num_heads) == (hidden, heads) else None


def _optional(row: Row, column: str) -> int | None:
    """A count in a column that not every table has."""
    return row.optional_count(column) if column in row.cells else None


def default_ffn(hidden_size: int, gated: bool) -> int:
    """4 x hidden, or 2/3 of that rounded up to a multiple of 256 (github.com/meta-llama/llama, model.py) where gated."""
    return -(-8 * hidden_size // 3 // 256) * 256 if gated else 4 * hidden_size
