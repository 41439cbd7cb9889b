"""The repeated block of the networks."""

from dataclasses import dataclass

from mindspore import Tensor, lazy_inline, nn, ops

from model_zoo.config import TransformerConfig
from model_zoo.experts import MixtureOfExperts, empty_places
from model_zoo.latent_attention import LatentAttention
from model_zoo.layers import FeedForward, GatedFeedForward, Norm, SelfAttention, attention_mask, rotary_tables


@dataclass(frozen=True)
class Constants:
    """Tensors that all blocks share: tables of the rotary angles, the mask of attention, empty places of experts."""

    rotary: tuple[Tensor, Tensor] | None
    mask: Tensor | None
    empty: tuple[Tensor, Tensor] | None


def constants(config: TransformerConfig) -> Constants:
    tables = rotary_tables(config) if config.position == "rotary" else None
    return Constants(tables, attention_mask(config), empty_places(config))


class TransformerBlock(nn.Cell):
    """One layer: attention and feed-forward, each with a residual sum; norms before (decoder) or after it (encoder)."""

    def __init__(self, config: TransformerConfig, shared: Constants, has_experts: bool) -> None:
        super().__init__()
        self.has_experts = has_experts
        self.norm_first = config.causal
        self.attention_norm, self.feed_forward_norm = (Norm(config, config.hidden_size) for _ in range(2))
        if config.latent_attention is not None:
            assert shared.rotary is not None
            self.attention = LatentAttention(config, shared.rotary, shared.mask)
        else:
            self.attention = SelfAttention(config, shared.rotary, shared.mask)
        if has_experts:
            assert shared.empty is not None
            self.feed_forward = MixtureOfExperts(config, shared.empty)
        else:
            dense = GatedFeedForward if config.activation == "swiglu" else FeedForward
            self.feed_forward = dense(config, config.intermediate_size)
        self.add_attention, self.add_feed_forward = ops.Add(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        if self.norm_first:
            x = self.add_attention(x, self.attention(self.attention_norm(x)))
            return self.add_feed_forward(x, self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(self.add_attention(x, self.attention(x)))
        return self.feed_forward_norm(self.add_feed_forward(x, self.feed_forward(x)))


def block_class(config: TransformerConfig) -> type[TransformerBlock]:
    if not config.lazy_inline:
        return TransformerBlock
    # Blocks of a kind are alike, so they share one sub-graph: these attributes are its key.
    shared = lazy_inline(attrs=["has_experts"])(TransformerBlock.__init__)
    return type("TransformerBlock", (TransformerBlock,), {"__init__": shared})
