"""The strategy that people write by hand: Megatron's tensor parallelism, with or without its sequence parallelism.

Shoeybi et al., "Megatron-LM", arXiv:1909.08053; Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models", arXiv:2205.05198. A yardstick for plans; nothing is planned with it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Graph, Op

Cuts = tuple[tuple[int, ...], ...]
"""One integer per dim of every tensor, as MindSpore's `shard` takes them."""

_COLUMN_CUT = ("query", "query_rotary", "key", "value", "gate", "up")
_ROW_CUT = ("output", "down")
_DISPATCH = (
    "route", "add_token", "add_place", "dispatch", "to_experts", "to_samples", "combine", "mul_weights", "sum_experts",
    "add_shared",
)  # fmt: skip
_BEFORE_SWAP = (
    "FlashAttentionScore",
    "Transpose",
)  # of attention's core: plain attention has heads before the sequence
_UNSHARDED = ("Cast", "Reshape", "StopGradient")  # MindSpore derives their layouts from the neighbours


def megatron_strategy(
    graph: Graph,
    config: TransformerConfig,
    data_parallel: int,
    model_parallel: int,
    sequence_parallel: bool,
    expert_parallel: int | None = None,
) -> Mapping[str, tuple[Cuts, Cuts | None]]:
    """Input and output cuts (None: MindSpore's own) by operator name, for the graph of `config`.

    The tokens are cut `data_parallel` times; heads, feed-forward width and vocabulary `model_parallel` times, each left
    whole where it does not divide. Experts are cut `expert_parallel` times, which divides `data_parallel` (None: as many times
    as that allows). With `sequence_parallel`, norms and residual sums cut the tokens by both. InputError
    if the batch (or, with sequence parallelism, the tokens) or the feed-forward width does not divide.
    """
    degrees = data_parallel * model_parallel
    if config.batch_size % data_parallel:
        raise InputError(f"batch_size {config.batch_size} does not divide by data_parallel {data_parallel}")
    if config.intermediate_size % model_parallel:
        raise InputError(f"width {config.intermediate_size} does not divide by model_parallel {model_parallel}")
    if expert_parallel and data_parallel % expert_parallel:
        raise InputError(f"data_parallel {data_parallel} does not divide by expert_parallel {expert_parallel}")
    if sequence_parallel and config.batch_size * config.seq_length % degrees:
        raise InputError(f"{config.batch_size * config.seq_length} tokens do not divide by {degrees} devices")
    rules = _Rules(
        data=data_parallel,
        model=model_parallel,
        heads=model_parallel if config.n_kv_heads % model_parallel == 0 else 1,
        vocabulary=model_parallel if config.vocab_size % model_parallel == 0 else 1,
        tokens=degrees if sequence_parallel else data_parallel,
        token_num=config.batch_size * config.seq_length,
        experts=math.gcd(expert_parallel or data_parallel, config.experts.number if config.experts is not None else 1),
        expert_width=model_parallel if config.experts and config.experts.intermediate_size % model_parallel == 0 else 1,
    )
    return {op.name: rules.cuts(graph, op) for op in graph.ops if op.type not in _UNSHARDED}


@dataclass(frozen=True)
class _Rules:
    """Degrees: `tokens` is that of norms and residual sums, `heads` that of attention, `model` of the feed-forward,
    `experts` of the experts.
    """

    data: int
    model: int
    heads: int
    vocabulary: int
    tokens: int
    token_num: int
    experts: int
    expert_width: int

    def cuts(self, graph: Graph, op: Op) -> tuple[Cuts, Cuts | None]:
        shapes = [t.shape for s in graph.tensor_inputs(op) if (t := graph.type_of(s)) is not None]
        ranks = [len(shape) for shape in shapes]
        owner = op.cell[-1] if op.cell else ""
        if "router" in op.cell or "experts" in op.cell or op.primitive in _DISPATCH:
            return self._experts(shapes, op), None
        if owner == "low_rank":
            owner = op.cell[-2]
        if op.type == "MatMul":
            return self._matmul(op, owner)
        if op.type == "Gather":
            return ((self.vocabulary if owner in ("word_embedding", "second_token") else 1, 1), (self.data, 1)), None
        if owner == "loss":
            return self._loss(graph, op), None
        return tuple(self._dims(op, owner, shape, ranks[0]) for shape in shapes), None

    def _experts(self, shapes: list[tuple[int, ...]], op: Op) -> Cuts:
        """Experts are cut with the samples as far as they go, their width like the feed-forward's."""
        expert = self.experts
        wide = (expert, self.data // expert, self.expert_width)
        if "router" in op.cell or op.primitive == "add_shared":
            if op.type == "OneHot":
                return (self.tokens, 1, 1), (), ()
            return tuple(_first_cut(shape, self.tokens if shape[:1] == (self.token_num,) else 1) for shape in shapes)
        if "experts" not in op.cell:
            return (
                ((*wide[:2], 1, 1),)
                if op.primitive == "to_samples"
                else tuple(_first_cut(s, self.data) for s in shapes)
            )
        if op.type != "BatchMatMul":
            return (wide,) * len(shapes)
        if op.primitive == "matmul_down":
            return wide, (expert, self.expert_width, 1)
        return (*wide[:2], 1), (expert, 1, self.expert_width)

    def _matmul(self, op: Op, owner: str) -> tuple[Cuts, Cuts | None]:
        if owner == "head":
            return ((self.data, 1), (self.vocabulary, 1)), None
        degree = self._width(op)
        if (op.primitive == "matmul_up" and owner in _ROW_CUT) or (
            op.primitive == "matmul_down" and owner in _COLUMN_CUT
        ):
            return ((self.data, 1), (1, 1)), None  # the small side of an adapter is whole
        if owner in _COLUMN_CUT:
            return ((self.data, 1), (degree, 1)), None
        if owner in _ROW_CUT:
            scattered = degree > 1 and self.tokens > self.data
            return ((self.data, degree), (1, degree)), (((self.data * degree, 1),) if scattered else None)
        return ((self.tokens, 1), (1, 1)), None

    def _width(self, op: Op) -> int:
        return self.heads if "attention" in op.cell else self.model

    def _dims(self, op: Op, owner: str, shape: tuple[int, ...], first_rank: int) -> tuple[int, ...]:
        """Element-wise operators, norms and everything on [batch, seq, heads, head_dim]; `shape` that of one input."""
        rank = len(shape)
        if rank == 4:
            is_swapped = owner in ("core", "repeat_key", "repeat_value") and op.type not in _BEFORE_SWAP
            is_swapped |= op.primitive == "transpose_out"
            head = 1 if is_swapped else 2
            heads = 1 if shape[head] == 1 and op.type != "Tile" else self.heads  # one that all share stays whole
            return (self.data, heads, 1, 1) if is_swapped else (self.data, 1, heads, 1)
        if first_rank == 4:  # rotary tables, masks and the scale of attention
            return (1,) * rank
        if first_rank == 3:
            return (self.data, 1, 1)
        if owner == "head":
            width = self.vocabulary
        elif owner in (*_COLUMN_CUT, "feed_forward", "shared"):
            width = self._width(op)
        else:
            width = 1
        whole_rows = self.tokens if width == 1 and owner not in (*_COLUMN_CUT, "head") else self.data
        return (whole_rows, width) if rank == 2 else (width,)[:rank]

    def _loss(self, graph: Graph, op: Op) -> Cuts:
        def dims(shape: tuple[int, ...]) -> tuple[int, ...]:
            return (self.data, self.vocabulary if shape[1] > 1 else 1) if len(shape) == 2 else ()

        if op.type == "OneHot":
            return (dims(op.outputs[0].shape), (), ())
        return tuple(dims(t.shape) for s in graph.tensor_inputs(op) if (t := graph.type_of(s)) is not None)


def _first_cut(shape: tuple[int, ...], degree: int) -> tuple[int, ...]:
    return (degree, *(1,) * (len(shape) - 1)) if shape else ()
