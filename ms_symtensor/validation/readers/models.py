"""A transformer from the columns that tables of many models share."""

from ms_symtensor.cost.configuration import Experts, Transformer
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers.common import must_be_given
from ms_symtensor.validation.readers.families import family_of
from ms_symtensor.validation.table import Row

DIMENSIONS = ("hidden", "layers", "heads", "ffn", "vocab", "experts", "topk")


def transformer_of(row: Row, name: str, kv_column: str = "kv_heads", imbalance: float = 1.0) -> Transformer:
    """The model in `row`, called `name`: its columns where they are filled, its family's facts elsewhere.

    An empty kv column means as many as heads, an empty ffn 4 x hidden (ungated) or Llama's 8/3, rounded up to 256.
    """
    for column in ("hidden", "layers", "heads"):
        if not row.text(column):
            raise UnusableRowError("the model's dimensions are not given")
    hidden, heads = row.count("hidden"), row.count("heads")
    family = family_of(name, hidden)
    ffn = row.optional_count("ffn")
    vocabulary = row.optional_count("vocab") or family.vocab_size
    if not vocabulary:
        raise UnusableRowError("the vocabulary is not given")
    number = row.optional_count("experts") or 1
    experts = None
    if number > 1:
        must_be_given(row, "topk")
        experts = Experts(
            num_experts=number,
            top_k=row.count("topk"),
            intermediate_size=(row.optional_count("moe_ffn") if "moe_ffn" in row.cells else None) or _given(ffn),
            shared_experts=family.shared_experts,
            dense_blocks=min(family.dense_blocks, row.count("layers")),
            imbalance=imbalance,
        )
    return Transformer(
        hidden_size=hidden,
        num_layers=row.count("layers"),
        num_heads=heads,
        n_kv_heads=row.optional_count(kv_column) or heads,
        intermediate_size=ffn or default_ffn(hidden, family.gated),
        vocab_size=vocabulary,
        head_dim=family.head_dim,
        gated=family.gated,
        norm=family.norm,
        position=family.position,
        linear_bias=family.linear_bias,
        qkv_bias=family.qkv_bias,
        tied_embeddings=family.tied_embeddings,
        experts=experts,
        latent_attention=family.latent_attention,
        mtp_blocks=family.mtp_blocks,
        geglu=family.geglu,
        post_norms=family.post_norms,
        capped_logits=family.capped_logits,
    )


def default_ffn(hidden_size: int, gated: bool) -> int:
    """4 x hidden, or 2/3 of that rounded up to a multiple of 256 (github.com/meta-llama/llama, model.py) where gated."""
    return -(-8 * hidden_size // 3 // 256) * 256 if gated else 4 * hidden_size


def _given(ffn: int | None) -> int:
    if ffn is None:
        raise UnusableRowError("the experts' width is not given")
    return ffn
