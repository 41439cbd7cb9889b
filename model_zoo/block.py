"""The repeated block of the networks."""

from collections.abc import Mapping
from dataclasses import dataclass

from mindspore import Tensor, lazy_inline, nn, ops

from model_zoo.config import BlockKind, TransformerConfig
from model_zoo.experts import MixtureOfExperts, empty_places
from model_zoo.latent_attention import LatentAttention
from model_zoo.layers import FeedForward, GatedFeedForward, Norm, SelfAttention, attention_mask, rotary_tables


@dataclass(frozen=True)
class Constants:
    """Tensors that all blocks share: tables of the rotary angles, the mask of attention, empty places of experts."""

    rotary: Mapping[float, tuple[Tensor, Tensor]]  # by the rotation's base
    mask: Mapping[int, Tensor | None]  # by the window
    empty: tuple[Tensor, Tensor] | None


def constants(config: TransformerConfig) -> Constants:
    kinds = {*map(config.kind, range(config.num_layers)), config.second_token_kind}
    bases = {kind.rotary_base for kind in kinds} if config.position == "rotary" else ()
    return Constants(
        {base: rotary_tables(config, base) for base in sorted(bases)},
        {window: attention_mask(config, window) for window in sorted({kind.window for kind in kinds})},
        empty_places(config),
    )


class TransformerBlock(nn.Cell):
    """One layer: attention and feed-forward, each with a residual sum. Norms stand before these branches, after them or both
    (decoder), or after the sum (encoder).
    """

    def __init__(self, config: TransformerConfig, shared: Constants, kind: BlockKind) -> None:
        super().__init__()
        self.kind = str(kind)
        self.is_decoder = config.causal
        self.norms_before = not config.causal or config.branch_norm != "after"
        self.norms_after = config.causal and config.branch_norm != "before"
        if self.norms_before:
            self.attention_norm, self.feed_forward_norm = (Norm(config, config.hidden_size) for _ in range(2))
        if self.norms_after:
            self.attended_norm, self.fed_forward_norm = (Norm(config, config.hidden_size) for _ in range(2))
        tables, mask = shared.rotary.get(kind.rotary_base) if kind.rotary else None, shared.mask[kind.window]
        if config.latent_attention is not None:
            assert tables is not None
            self.attention = LatentAttention(config, tables, mask)
        else:
            self.attention = SelfAttention(config, tables, mask, kind.window)
        if kind.experts:
            assert shared.empty is not None
            self.feed_forward = MixtureOfExperts(config, shared.empty)
        else:
            dense = FeedForward if config.activation == "gelu" else GatedFeedForward
            self.feed_forward = dense(config, config.intermediate_size)
        self.add_attention, self.add_feed_forward = ops.Add(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        if self.is_decoder:
            attended = self.attention(self.attention_norm(x) if self.norms_before else x)
            x = self.add_attention(x, self.attended_norm(attended) if self.norms_after else attended)
            fed = self.feed_forward(self.feed_forward_norm(x) if self.norms_before else x)
            return self.add_feed_forward(x, self.fed_forward_norm(fed) if self.norms_after else fed)
        x = self.attention_norm(self.add_attention(x, self.attention(x)))
        return self.feed_forward_norm(self.add_feed_forward(x, self.feed_forward(x)))


def block_class(config: TransformerConfig) -> type[TransformerBlock]:
    if not config.lazy_inline:
        return TransformerBlock
    # Blocks of a kind are alike, so they share one sub-graph: these attributes are its key.
    shared = lazy_inline(attrs=["kind"])(TransformerBlock.__init__)
    return type("TransformerBlock", (TransformerBlock,), {"__init__": shared})
