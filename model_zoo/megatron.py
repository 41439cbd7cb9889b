"""Uniform layouts, as people write them by hand: Megatron's tensor parallelism, with or without its sequence parallelism.

Shoeybi et al., "Megatron-LM", arXiv:1909.08053; Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models", arXiv:2205.05198. Sequences are cut by context parallelism: heads change places with tokens around
attention (Jacobs et al., "DeepSpeed Ulysses", arXiv:2309.14509), or every rank gathers all keys and values.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Graph, Op

Cuts = tuple[tuple[int, ...], ...]
"""One integer per dim of every tensor, as MindSpore's `shard` takes them."""

_COLUMN_CUT = ("query", "query_rotary", "key", "value", "gate", "up", "mixed", "rates", "step")
_ROW_CUT = ("output", "down")
_DISPATCH = (
    "route", "add_token", "add_place", "dispatch", "to_experts", "to_samples", "combine", "mul_weights", "sum_experts",
    "add_shared", "sigmoid_gate", "mul_gate", "place_in_expert", "is_there", "mul_there",
)  # fmt: skip
_SHARED = ("add_shared", "sigmoid_gate", "mul_gate")  # what is done to the shared expert's result
_GATED = ("sigmoid_heads", "mul_heads")  # what a gate does to attention's heads
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
    context_parallel: int = 1,
    exchanges_heads: bool = True,
    expert_model_parallel: int | None = None,
    cuts_embedding: bool = True,
    gathers_logits: bool = False,
    feed_forward_parallel: int = 0,
) -> Mapping[str, tuple[Cuts, Cuts | None]]:
    """Input and output cuts (None: MindSpore's own) by operator name, for the graph of `config`.

    Samples are cut `data_parallel` times, their sequences `context_parallel` times; heads, feed-forward width and vocabulary
    `model_parallel` times, each left whole where it does not divide. With `sequence_parallel`, norms and residual sums cut the
    tokens by all of these.

    Args:
        expert_parallel: into how many slices experts are cut (None: as many as `data_parallel` allows).
        exchanges_heads: context parallelism cuts heads in attention (where key-value heads divide), not the query's sequence.
        expert_model_parallel: into how many slices the width of every expert is cut (None: `model_parallel`).
        cuts_embedding: the table of embeddings is cut by `model_parallel`, as the vocabulary of the head is.
        feed_forward_parallel: into how many slices the width of a dense feed-forward is cut, which then takes all tokens (0:
            `model_parallel`, and the tokens as they are cut).
        gathers_logits: the loss is computed from the logits of the whole vocabulary.

    Raises:
        InputError: if the batch, the sequence (or, with sequence parallelism, the tokens), the experts or the feed-forward
            width do not divide.
    """
    degrees = data_parallel * model_parallel * context_parallel
    if config.batch_size % data_parallel:
        raise InputError(f"batch_size {config.batch_size} does not divide by data_parallel {data_parallel}")
    if config.intermediate_size % model_parallel:
        raise InputError(f"width {config.intermediate_size} does not divide by model_parallel {model_parallel}")
    # MindSpore cuts a table and what is looked up at once on few meshes only: sequences are looked up whole.
    is_cut = cuts_embedding and config.vocab_size % model_parallel == 0 and 1 in (data_parallel, context_parallel)
    number = config.experts.number if config.experts is not None else 1
    width = config.experts.intermediate_size if config.experts is not None else 1
    cut_width = model_parallel if expert_model_parallel is None else expert_model_parallel
    cut_width = cut_width if width % cut_width == 0 else 1
    experts = math.gcd(expert_parallel or data_parallel, number)
    if expert_parallel and (number % expert_parallel or degrees % (expert_parallel * cut_width)):
        raise InputError(
            f"expert_parallel {expert_parallel} does not divide {number} experts, or not the {degrees} devices of a stage with"
            f" experts' width cut by {cut_width}"
        )
    require_context(config, context_parallel)
    if sequence_parallel and config.batch_size * config.seq_length % degrees:
        raise InputError(f"{config.batch_size * config.seq_length} tokens do not divide by {degrees} devices")
    rules = _Rules(
        data=data_parallel,
        model=model_parallel,
        heads=model_parallel if config.n_kv_heads % model_parallel == 0 else 1,
        vocabulary=model_parallel if config.vocab_size % model_parallel == 0 else 1,
        context=context_parallel,
        context_heads=exchanges_heads and config.n_kv_heads % (model_parallel * context_parallel) == 0,
        table=model_parallel if is_cut else 1,
        loss=1 if gathers_logits or config.vocab_size % model_parallel else model_parallel,
        tokens=degrees if sequence_parallel else data_parallel * context_parallel,
        token_num=config.batch_size * config.seq_length,
        seq_length=config.seq_length,
        samples=config.routed_groups,
        routed=math.gcd(degrees if sequence_parallel else data_parallel * context_parallel, config.routed_groups),
        feed_forward=feed_forward_parallel or model_parallel,
        experts=experts,
        expert_width=cut_width,
        expert_rows=max(1, degrees // (experts * cut_width)),
        absorbed=_absorbed_requests(config, data_parallel, model_parallel),
        positions=context_parallel * (model_parallel if config.seq_length % (degrees // data_parallel) == 0 else 1),
        linear=frozenset(n for n in range(config.num_layers) if config.kind(n).linear),
        key_heads=config.key_groups,
    )
    return {op.name: rules.cuts(graph, op) for op in graph.ops if op.type not in _UNSHARDED}


def require_context(config: TransformerConfig, context_parallel: int) -> None:
    """InputError where sequences cannot be cut so often: the groups in which experts' tokens are routed stay whole."""
    if context_parallel > 1 and (config.seq_length % context_parallel or config.attention != "flash"):
        if config.score_cap or config.sinks:
            remedy = "leave it at 1, since flash attention has no form for capped scores and sinks"
        elif config.attention != "flash":
            remedy = "give flash attention"
        else:
            remedy = "give a length that divides"
        raise InputError(
            f"sequences of {config.seq_length} tokens with {config.attention} attention cannot be cut by context_parallel"
            f" {context_parallel}: {remedy}"
        )
    if config.experts is not None and config.experts.token_groups % context_parallel:
        raise InputError(
            f"experts route a sample's tokens in groups, whose number context_parallel {context_parallel} does not divide: give"
            f" --token-groups {context_parallel}, or data_parallel or model_parallel"
        )


def _absorbed_requests(config: TransformerConfig, data_parallel: int, model_parallel: int) -> int:
    """How many times requests of a decode step of latent attention are cut; 0 where its heads are, or for other networks.

    Requests, as far as they go: then queries change place with tokens at their narrowest. Where both were cut with heads first,
    MindSpore would count the ranks otherwise than before and after.
    """
    if config.latent_attention is None or config.phase is None or not config.phase.is_decode:
        return 0
    shared = math.gcd(model_parallel, config.batch_size // data_parallel)
    return data_parallel * shared if data_parallel > 1 or shared == model_parallel else 0


@dataclass(frozen=True)
class _Rules:
    """Degrees: `tokens` is that of norms and residual sums, `heads` that of attention, `model` of the feed-forward, `context` of
    sequences, `routed` of what is dispatched to experts, `table` of the embeddings, `loss` of the loss's vocabulary, `experts`,
    `expert_rows` and `expert_width` of the experts. `context_heads`: in attention heads are cut by `context`, not sequences.
    `absorbed`: that of requests in a decode step of latent attention, 0: heads are cut there, too. `positions`: of an indexer's
    queries. `linear`: the layers with linear attention, of so many `key_heads`.
    """

    data: int
    model: int
    heads: int
    vocabulary: int
    context: int
    context_heads: bool
    table: int
    loss: int
    tokens: int
    token_num: int
    seq_length: int
    samples: int
    routed: int
    feed_forward: int
    experts: int
    expert_width: int
    expert_rows: int
    absorbed: int
    positions: int
    linear: frozenset[int]
    key_heads: int

    @property
    def groups(self) -> int:
        """Slices of the heads of linear attention."""
        return self.model if self.key_heads % self.model == 0 else 1

    @property
    def core_groups(self) -> int:
        """The same inside, where sequences are whole."""
        is_exchanged = self.key_heads % (self.groups * self.context) == 0
        return self.groups * self.context if is_exchanged else self.groups

    @property
    def rows(self) -> int:
        """Slices of tokens that no tensor parallelism cuts."""
        return self.data * self.context

    def cuts(self, graph: Graph, op: Op) -> tuple[Cuts, Cuts | None]:
        shapes = [t.shape for s in graph.tensor_inputs(op) if (t := graph.type_of(s)) is not None]
        ranks = [len(shape) for shape in shapes]
        owner = op.cell[-1] if op.cell else ""
        if self._is_linear(op) and "core" in op.cell:
            return tuple(self._in_core(op, shape) for shape in shapes), None
        if self._is_linear(op) and owner == "norm":  # of a group of heads each
            return tuple((self.rows, self.groups, 1)[: len(s)] if len(s) > 1 else self._gamma(op) for s in shapes), None
        if self._is_linear(op) and op.type == "Transpose":
            is_last = op.primitive == "transpose_out"
            return (
                (self.data, self.groups, self.context, 1) if is_last else (self.data, self.context, self.groups, 1),
            ), None
        if "router" in op.cell or "experts" in op.cell or op.primitive in _DISPATCH:
            return self._experts(shapes, op), None
        if "indexer" in op.cell:
            return tuple(self._indexed(op, number, shape) for number, shape in enumerate(shapes)), None
        if owner in ("low_rank", "cap"):
            owner = op.cell[-2]
        if op.type == "MatMul":
            return self._matmul(op, owner)
        if op.type == "Gather":
            return (
                (self.table if owner in ("word_embedding", "second_token") else 1, 1),
                (self.data, self.context if self.table == 1 else 1),
            ), None
        if op.type == "L2Normalize":  # of the head's table
            return ((self.vocabulary, 1),), None
        if owner == "loss":
            return self._loss(graph, op), None
        if op.type == "FlashAttentionScore" and (self.context > 1 or len(shapes[-1]) == 4):
            return self._attention(shapes), None
        if op.type in ("ReshapeAndCache", "PagedAttention"):
            return self._paged(graph, op, ranks), None
        if op.cell[-1:] in (("key",), ("value",)) and op.type in ("BatchMatMul", "Transpose"):
            return self._absorbed(op), None
        return tuple(self._dims(op, owner, shape, ranks[0]) for shape in shapes), None

    def _is_linear(self, op: Op) -> bool:
        return op.cell[:1] == ("layers",) and op.cell[2:3] == ("attention",) and int(op.cell[1]) in self.linear

    def _gamma(self, op: Op) -> tuple[int, ...]:
        return (self.groups,) if op.type == "Mul" else (1,)

    def _in_core(self, op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Samples and heads of an input of linear attention's core; constants stay whole."""
        groups = self.core_groups
        if len(shape) >= 4:
            data = self.data if shape[0] > 1 and op.primitive != "split_weight" else 1
            return (data, groups, *(1,) * (len(shape) - 2))
        if op.type == "CumSum":  # of a head's chunks
            return (self.data, groups, 1)
        is_of_heads = op.cell[-1] == "decay" and op.type in ("Add", "Mul") and len(shape) == 3
        return (groups if is_of_heads else 1, *(1,) * (len(shape) - 1))[: len(shape)]

    def _attention(self, shapes: list[tuple[int, ...]]) -> Cuts:
        """Query, key, value and mask: heads are cut by context parallelism, or the query's sequence."""
        heads = self.heads * self.context if self.context_heads else self.heads
        query = 1 if self.context_heads else self.context
        cuts = [(self.data, query, heads, 1), *[(self.data, 1, heads, 1)] * 2]
        mask = (self.data, 1, query, 1)  # of an indexer
        return (*cuts, *(mask if len(shape) == 4 else (1,) * len(shape) for shape in shapes[3:]))

    def _indexed(self, op: Op, number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Input `number` of an operator of the indexer: all ranks of a sample have queries of their own, which see all keys."""
        if len(shape) == 4:
            if op.primitive == "score" and number == 1:
                return (self.data, 1, 1, 1)
            is_before = op.cell[-1].startswith("rotate") or op.primitive.startswith("transpose")
            return (self.data, self.positions, 1, 1) if is_before else (self.data, 1, self.positions, 1)
        if len(shape) == 3 or op.primitive == "add_unseen":  # tables of the rotation, scores of keys that are not seen
            return (self.positions, *(1,) * (len(shape) - 1))
        is_of_tokens = len(shape) == 2 and shape[0] == self.token_num and number == 0
        return (self.data * self.positions, 1) if is_of_tokens else (1,) * len(shape)

    def _paged(self, graph: Graph, op: Op, ranks: list[int]) -> Cuts:
        """Heads of new keys and values, of queries, and of the cache; queries and block tables are cut along the requests.

        A cache without heads stays whole, and MindSpore cuts no heads of queries without those of the cache.
        """
        cache = graph.type_of(graph.tensor_inputs(op)[2 if op.type == "ReshapeAndCache" else 1])
        assert cache is not None
        heads = self.heads if cache.shape[2] > 1 else 1
        if op.type == "ReshapeAndCache":
            return (*[(1, 1, heads)] * 2, *[(1, 1, heads, 1)] * 2, (1,))
        requests = self.absorbed if cache.shape[2] == 1 and self.absorbed else self.data
        rest = tuple((1,) * rank for rank in ranks[4:])
        return ((requests, 1, heads), *[(1, 1, heads, 1)] * 2, (requests, 1), *rest)

    def _absorbed(self, op: Op) -> Cuts:
        """A product of every head with its own weight, heads first; tokens come first in what is turned before it."""
        heads, tokens = (1, self.absorbed) if self.absorbed else (self.heads, self.data)
        if op.type == "BatchMatMul":
            return (heads, tokens, 1), (heads, 1, 1)
        return ((tokens, heads, 1) if op.primitive == "transpose_in" else (heads, tokens, 1),)

    def _experts(self, shapes: list[tuple[int, ...]], op: Op) -> Cuts:
        """Experts are cut with the samples as far as they go, their width like the feed-forward's."""
        expert, rows = self.experts, math.gcd(self.expert_rows, self.samples)
        if "router" in op.cell or op.primitive in _SHARED:
            if op.type == "OneHot":
                return (self.tokens, 1, 1), (), ()
            return tuple(_first_cut(shape, self.tokens if shape[:1] == (self.token_num,) else 1) for shape in shapes)
        if "experts" not in op.cell:
            return (
                ((expert, rows, 1, 1),)
                if op.primitive == "to_samples"
                else tuple(_first_cut(s, self.routed) for s in shapes)
            )

        def wide(shape: tuple[int, ...], last: int) -> tuple[int, ...]:
            """Of [samples, experts, places, width], [experts, places of all samples, width] or what is added to these."""
            if len(shape) == 4:
                return rows, expert, self.expert_rows // rows, last
            return (expert, self.expert_rows if shape[1] > 1 else 1, last) if shape else ()

        if op.type != "BatchMatMul":
            last = 1 if op.primitive in ("add_down", "scale_down") else self.expert_width
            return tuple(wide(shape, last) for shape in shapes)
        if op.primitive == "matmul_down":
            return wide(shapes[0], self.expert_width), (expert, self.expert_width, 1)
        return wide(shapes[0], 1), (expert, 1, self.expert_width)

    def _matmul(self, op: Op, owner: str) -> tuple[Cuts, Cuts | None]:
        if owner == "head":
            return ((self.rows, 1), (self.vocabulary, 1)), None
        degree = self._width(op)
        if (op.primitive == "matmul_up" and owner in _ROW_CUT) or (
            op.primitive == "matmul_down" and owner in _COLUMN_CUT
        ):
            return ((self.rows, 1), (1, 1)), None  # the small side of an adapter is whole
        rows = self._rows_of(op)
        if owner in _COLUMN_CUT:
            return ((rows, 1), (degree, 1)), None
        if owner in _ROW_CUT:
            scattered = degree > 1 and self.tokens > self.rows
            return ((rows, degree), (1, degree)), (((self.rows * degree, 1),) if scattered else None)
        return ((self.tokens, 1), (1, 1)), None

    def _width(self, op: Op) -> int:
        if "attention" in op.cell:
            return self.groups if self._is_linear(op) else self.heads
        return self.feed_forward if "feed_forward" in op.cell else self.model

    def _rows_of(self, op: Op) -> int:
        """Slices of tokens in linear layers: a feed-forward that is cut wider than by `model` takes all."""
        return 1 if "feed_forward" in op.cell and self.feed_forward > self.model else self.rows

    def _dims(self, op: Op, owner: str, shape: tuple[int, ...], first_rank: int) -> tuple[int, ...]:
        """Element-wise operators, norms and everything on [batch, seq, heads, head_dim]; `shape` that of one input."""
        rank = len(shape)
        if rank == 4:
            if self.absorbed and op.primitive == "join_query":
                return (self.absorbed, 1, 1, 1)
            is_swapped = owner in ("core", "softmax", "repeat_key", "repeat_value") and op.type not in _BEFORE_SWAP
            is_swapped |= op.primitive == "transpose_out"
            head = 1 if is_swapped else 2
            heads = 1 if shape[head] == 1 and op.type != "Tile" else self.heads  # one that all share stays whole
            data = self.data if shape[0] > 1 else 1
            return (data, heads, 1, 1) if is_swapped else (data, self.context, heads, 1)
        if op.primitive == "add_table" and rank == 2:  # every head's own
            return self.heads, 1
        if first_rank == 4:  # rotary tables, masks and the scale of attention
            return (self.context, 1, 1) if rank == 3 and shape[0] == self.seq_length else (1,) * rank
        if first_rank == 3:
            return (self.data, self.context, 1)
        if owner == "head":
            width = self.vocabulary
        elif owner in (*_COLUMN_CUT, "feed_forward", "shared") or op.primitive in _GATED:
            width = self._width(op)
        else:
            width = 1
        is_whole = width == 1 and owner not in (*_COLUMN_CUT, "head") and op.primitive not in _GATED
        whole_rows = self.tokens if is_whole else self._rows_of(op)
        return (whole_rows, width) if rank == 2 else (width,)[:rank]

    def _loss(self, graph: Graph, op: Op) -> Cuts:
        def dims(shape: tuple[int, ...]) -> tuple[int, ...]:
            return (self.rows, self.loss if shape[1] > 1 else 1) if len(shape) == 2 else ()

        if op.type == "OneHot":
            return (dims(op.outputs[0].shape), (), ())
        return tuple(dims(t.shape) for s in graph.tensor_inputs(op) if (t := graph.type_of(s)) is not None)


def _first_cut(shape: tuple[int, ...], degree: int) -> tuple[int, ...]:
    return (degree, *(1,) * (len(shape) - 1)) if shape else ()
