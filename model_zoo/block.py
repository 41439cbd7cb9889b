"""The repeated block of the networks."""

from collections.abc import Mapping
from dataclasses import dataclass

from mindspore import Tensor, lazy_inline, nn, ops

from model_zoo.config import BlockKind, TransformerConfig
from model_zoo.delta import GatedDelta
from model_zoo.distance import distance_tables
from model_zoo.experts import MixtureOfExperts, empty_places
from model_zoo.indexer import unseen
from model_zoo.latent_attention import LatentAttention
from model_zoo.layers import FeedForward, GatedFeedForward, Norm, SelfAttention, attention_mask, dtype_of, rotary_tables
from model_zoo.state_space import StateSpace


@dataclass(frozen=True)
class Constants:
    """Tensors that all blocks share: tables of the rotary angles, the mask of attention, empty places of experts."""

    rotary: Mapping[float, tuple[Tensor, Tensor]]  # by the rotation's base; biases by distance at any
    mask: Mapping[int, Tensor | None]  # by the window; of an indexer what is added to its scores
    index_rotary: tuple[Tensor, Tensor] | None
    empty: tuple[Tensor, Tensor] | None


def constants(config: TransformerConfig) -> Constants:
    kinds = {*map(config.kind, range(config.num_layers)), config.second_token_kind}
    bases = {kind.rotary_base for kind in kinds} if config.position != "learned" else ()

    def tables(base: float) -> tuple[Tensor, Tensor]:
        return (
            distance_tables(config, dtype_of(config.compute_dtype))
            if config.position == "distance"
            else rotary_tables(config, base)
        )

    masks = {window: attention_mask(config, window) for window in sorted({kind.window for kind in kinds})}
    return Constants(
        {base: tables(base) for base in sorted(bases)},
        masks if config.indexer is None else {0: unseen(config)},
        None if config.indexer is None else rotary_tables(config.of_indexer),
        empty_places(config),
    )


class TransformerBlock(nn.Cell):
    """One layer: attention and feed-forward, each with a residual sum. Norms stand before these branches, after them or both
    (decoder), or after the sum (encoder). Branches that stand side by side read the block's input, of their own norms or one.
    Where blocks share the choice of an indexer, it goes in and out behind x; see `LatentAttention`. `kind.only`: a block of
    one branch.
    """

    def __init__(self, config: TransformerConfig, shared: Constants, kind: BlockKind) -> None:
        super().__init__()
        self.kind, self.shares_choice, self.passes_choice = str(kind), kind.shares_choice, config.passes_choice
        self.is_decoder = config.causal
        before, after = config.norms_branches(kind)
        self.norms_before, self.norms_after = before or not config.causal, after and config.causal
        self.is_parallel, self.shares_norm = config.is_parallel, config.branch_norm == "shared"
        self.attends, self.feeds = kind.only != "feed_forward", kind.only != "attention"
        if self.norms_before and self.attends:
            self.attention_norm = Norm(config, config.hidden_size)
        if self.norms_before and self.feeds and not self.shares_norm:
            self.feed_forward_norm = Norm(config, config.hidden_size)
        if self.norms_after:
            self.attended_norm, self.fed_forward_norm = (Norm(config, config.hidden_size) for _ in range(2))
        if self.attends:
            self.attention, self.add_attention = _attention(config, shared, kind), ops.Add()
        if self.feeds:
            self.feed_forward, self.add_feed_forward = _feed_forward(config, shared, kind), ops.Add()
        self.is_scaled = config.branch_scale != 1.0
        if self.is_scaled:
            self.scale = Tensor(config.branch_scale, dtype_of(config.compute_dtype))
            self.scale_attention, self.scale_feed_forward = ops.Mul(), ops.Mul()

    def construct(self, x: Tensor, hidden: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        if not self.feeds:
            return self.add_attention(x, self.attention(self.attention_norm(x)))
        if not self.attends:
            return self.add_feed_forward(x, self.feed_forward(self.feed_forward_norm(x)))
        if self.is_decoder:
            read = self.attention_norm(x) if self.norms_before else x
            if self.passes_choice:
                attended, hidden = self.attention(read, hidden) if self.shares_choice else self.attention(read)
            else:
                attended = self.attention(read)
            attended = self.attended_norm(attended) if self.norms_after else attended
            attended = self.scale_attention(attended, self.scale) if self.is_scaled else attended
            if not self.is_parallel:
                x = self.add_attention(x, attended)
            if self.norms_before and not self.shares_norm:
                read = self.feed_forward_norm(x)
            fed = self.feed_forward(read if self.norms_before else x)
            fed = self.fed_forward_norm(fed) if self.norms_after else fed
            fed = self.scale_feed_forward(fed, self.scale) if self.is_scaled else fed
            if self.is_parallel:
                x = self.add_attention(x, attended)
            x = self.add_feed_forward(x, fed)
            return (x, hidden) if self.passes_choice else x
        x = self.attention_norm(self.add_attention(x, self.attention(x)))
        return self.feed_forward_norm(self.add_feed_forward(x, self.feed_forward(x)))


def _attention(config: TransformerConfig, shared: Constants, kind: BlockKind) -> nn.Cell:
    if kind.linear:
        return StateSpace(config) if config.delta is None else GatedDelta(config)
    tables, mask = shared.rotary.get(kind.rotary_base) if kind.rotary else None, shared.mask[kind.window]
    if config.latent_attention is not None:
        return LatentAttention(config, tables, mask, shared.index_rotary, kind.shares_choice)
    return SelfAttention(config, tables, mask, kind.window)


def _feed_forward(config: TransformerConfig, shared: Constants, kind: BlockKind) -> nn.Cell:
    if kind.experts:
        assert shared.empty is not None
        return MixtureOfExperts(config, shared.empty)
    dense = GatedFeedForward if config.is_gated else FeedForward
    return dense(config, config.intermediate_size)


def block_class(config: TransformerConfig) -> type[TransformerBlock]:
    if not config.lazy_inline:
        return TransformerBlock
    # Blocks of a kind are alike, so they share one sub-graph: these attributes are its key.
    shared = lazy_inline(attrs=["kind"])(TransformerBlock.__init__)
    return type("TransformerBlock", (TransformerBlock,), {"__init__": shared})
