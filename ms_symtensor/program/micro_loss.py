"""What a loss makes of micro-batches: how the loss of a whole batch follows from theirs.

MindSpore's steps take the mean over micro-batches. That is the loss of the whole batch where all samples weigh the same. A sum
over samples divided by a count that no weight changes (of the tokens that are not masked, say) is

    sum_i N_i / D  =  mean_i (N_i / D_i) * M * D_i / D

over M micro-batches with sums N_i and counts D_i, D being the count of the whole batch: each micro-batch has a factor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import isfinite

from ms_symtensor.ops.loss import RULES as LOSSES
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import Combine, view
from ms_symtensor.program.count_values import filled, is_defined, number_of, uniform_inputs, value_of
from ms_symtensor.program.samples import QUOTIENTS, Holds, adds_up, grown, is_linear
from ms_symtensor.tensor.graph import (
    Constant,
    Graph,
    InputRef,
    Op,
    OpOutput,
    Source,
    TensorType,
    flat,
    makers_behind,
    replaced,
    sources_of,
)

_MOST_OF_RATIO = 1 << 20
"""The largest denominator of how a number changes with the batch: batches are whole numbers of samples (empirical)."""
ADDITIONS = frozenset(
    {
        "Add", "AddExt", "AddN", "Adds", "Sub", "SubExt", "Subs", "BiasAdd", "InplaceAddExt", "InplaceAddsExt", "InplaceSubExt",
        "InplaceSubScalar",
    }
)  # fmt: skip
_DIVISIONS = QUOTIENTS | {"Divs", "InplaceDivs"}
_VIEWS = frozenset({"Cast", "Reshape", "Squeeze", "ExpandDims"})
_PRODUCTS = frozenset({"Mul", "Muls", "InplaceMul", "InplaceMuls"})


@dataclass(frozen=True)
class Count:
    """What a loss is divided by, or with `multiplies` multiplied: a graph of inputs alone, at a micro-batch and a whole batch.

    `scale`: that of the sum or mean over samples (as of a `Term`) which is the count as it is; None for what is made of one.
    """

    micro: Graph
    whole: Graph
    multiplies: bool = False
    scale: Fraction | None = None


@dataclass(frozen=True)
class Term:
    """Addends of a loss: the whole batch's are the mean over micro-batches of theirs times `scale`, and times the share of the
    micro-batch in the `count` of the whole batch. `free`: no sample changes them.
    """

    scale: Fraction
    count: Count | None = None
    free: bool = False

    @property
    def has_mean_one(self) -> bool:
        """Whether the factors of the micro-batches are 1 in the mean, so that what no sample changes may have them too."""
        scale = Fraction(1) if self.count is None else self.count.scale
        return self.scale == scale and (self.count is None or not self.count.multiplies)


FREE = Term(Fraction(1), free=True)

Terms = frozenset[Term]


@dataclass(frozen=True)
class _Each:
    """A tensor with a part for every sample, which is linear in 1 / `count` where that is not None."""

    count: Count | None = None


class _Counted:
    """A tensor without samples that no weight changes."""


_COUNTED = _Counted()
_State = _Each | _Counted | Terms | None
"""None: something else. What no sample changes has no state."""


def terms_of_loss(graph: Graph, whole: Graph, rules: Mapping[str, Rule] | None = None) -> Terms | None:
    """The terms of the loss of `graph`, the network at a micro-batch; `whole` is the same one at a whole batch.

    None where the loss has another form than a sum of terms. Errors: UnknownOperatorError.
    """
    return Reader(graph, whole, rules).loss()


class Reader:
    """The terms of every tensor, in `states` once `loss` has gone through the graph."""

    def __init__(self, graph: Graph, whole: Graph, rules: Mapping[str, Rule] | None) -> None:
        self.graph, self.whole, self.rules = graph, whole, rules
        sizes = (g.inputs[0][1].shape[0] if g.inputs and g.inputs[0][1].shape else 1 for g in (whole, graph))
        self.number = Fraction(*sizes)
        self.states: dict[Source, _State] = {InputRef(name): _Each() for name, _ in graph.inputs}
        self.weightless: set[Source] = set(self.states)

    def loss(self) -> Terms | None:
        """The terms of the loss; None where it is no sum of terms."""
        if [op.name for op in self.graph.ops] != [op.name for op in self.whole.ops]:
            return None
        for op, twin in zip(self.graph.ops, self.whole.ops, strict=True):
            sources = self.graph.tensor_inputs(op)
            found = {p: self.states[source] for p, source in enumerate(sources) if source in self.states}
            if all(source in self.weightless or isinstance(source, Constant) for source in sources_of(op)):
                self.weightless.update(op.results)
            if not found:
                continue
            for number, result in enumerate(op.results):
                dims = grown(op.outputs[number], twin.outputs[number])
                state = self._state(op, twin, found, bool(dims), result in self.weightless)
                self.states[result] = None if len(dims) > 1 else state  # every sample beside every other one
        total = self.states.get(self.graph.output, frozenset({FREE}))
        return total if isinstance(total, frozenset) else None

    def _state(self, op: Op, twin: Op, found: Mapping[int, _State], has_samples: bool, free: bool) -> _State:
        states = [*found.values()]
        if free and not has_samples:
            return _COUNTED
        if None in states or op.type.startswith("BatchNorm"):
            return None
        if not any(isinstance(state, _Each) for state in states):
            return None if has_samples else self._without_samples(op, twin, found)
        each = self._each(op, found)
        if each is None or has_samples:
            return each
        scale = self._scale(op, found)
        return None if scale is None else frozenset({Term(scale, each.count)})

    def _each(self, op: Op, found: Mapping[int, _State]) -> _Each | None:
        """What `op` makes of tensors that have samples."""
        over = {position: state.count for position, state in found.items() if isinstance(state, _Each) and state.count}
        others = [position for position, state in found.items() if not isinstance(state, _Each)]
        if others:
            count = (
                self._count(op, others[0]) if found[others[0]] is _COUNTED and len(found) == 2 and not over else None
            )
            return None if count is None else _Each(count)
        if not over:
            return _Each()
        linear = len(over) == 1 and is_linear(self.graph, op, dict.fromkeys(over, Holds.SUM), self.rules)
        return _Each(next(iter(over.values()))) if linear and op.type not in ADDITIONS else None

    def _without_samples(self, op: Op, twin: Op, found: Mapping[int, _State]) -> _State:
        """What `op` makes of sums over the samples, and of counts."""
        counts = [position for position, state in found.items() if state is _COUNTED]
        terms = {position: state for position, state in found.items() if isinstance(state, frozenset)}
        if counts:
            count = self._count(op, counts[0]) if len(counts) == len(terms) == 1 else None
            before = next(iter(terms.values()), frozenset())
            if count is None or any(term.count for term in before):
                return None
            return frozenset(replace(term, count=count) for term in before)
        if not is_linear(self.graph, op, dict.fromkeys(terms, Holds.SUM), self.rules):
            return None
        united = frozenset().union(*terms.values())
        if op.type in ADDITIONS:
            beside = (s for s in op.inputs for one in flat((s,)) if one not in self.states and not is_zero(one))
            return united | {FREE} if any(True for _ in beside) else united
        factor = self._factor(op, twin)
        return frozenset(replace(term, scale=term.scale * factor) for term in united)

    def _count(self, op: Op, position: int) -> Count | None:
        """The count by which `op` divides or multiplies what is not its tensor input number `position`; None for another one."""
        divides = op.type in QUOTIENTS and position == 1
        if not divides and op.type not in _PRODUCTS:
            return None
        result = self.graph.tensor_inputs(op)[position]
        kind = self.graph.type_of(result)
        micro, whole = (_cone(graph, result) for graph in (self.graph, self.whole))
        if kind is None or kind.element_num != 1 or not is_defined(micro) or not is_defined(whole):
            return None
        return Count(micro, whole, not divides, self._scale_of_count(result))

    def _scale_of_count(self, result: Source) -> Fraction | None:
        """The scale of the sum over samples that `result` is."""
        while isinstance(result, OpOutput):
            op = self.graph.op_by_name[result.op]
            states = {p: self.states.get(one) for p, one in enumerate(self.graph.tensor_inputs(op))}
            if any(isinstance(state, _Each) for state in states.values()):
                return self._scale(op, {p: state for p, state in states.items() if state is not None})
            if op.type not in _VIEWS:
                return None
            result = op.inputs[0]
        return None

    def _factor(self, op: Op, twin: Op) -> Fraction:
        """By how much more `op` multiplies the whole batch's sum by a number than that of a micro-batch."""
        pair = [next(filter(None, map(number_of, one.inputs)), None) for one in (op, twin)]
        if op.type not in _DIVISIONS | _PRODUCTS or None in pair or pair[0] == pair[1]:
            return Fraction(1)
        micro, whole = (float(n) for n in pair if n is not None)
        ratio = micro / whole if op.type in _DIVISIONS else whole / micro
        return Fraction(ratio).limit_denominator(_MOST_OF_RATIO)

    def _scale(self, op: Op, found: Mapping[int, _State]) -> Fraction | None:
        """How the sum or mean that `op` takes over the samples follows from those of micro-batches; None for another one."""
        if op.body is not None:
            return None
        if op.type in LOSSES:
            return {"mean": Fraction(1), "sum": self.number}.get(_reduction(op))
        if not adds_up(self.graph, self.whole, op, found, self.rules):
            return None
        return Fraction(1) if signature(view(self.graph, op), self.rules).combine is Combine.MEAN else self.number


def _reduction(op: Op) -> str:
    """Of a loss that is one operator: "mean" or "sum"; empty where samples may weigh differently, or it is not told."""
    if op.type == "SparseSoftmaxCrossEntropyWithLogits":
        return "mean"
    if op.type == "NLLLoss":
        return ""
    said = op.attribute("reduction", next((s.value for s in op.inputs[::-1] if isinstance(s, Constant)), None))
    if isinstance(said, str):
        return "mean" if said == "batchmean" else said
    return _REDUCTIONS.get(said, "") if isinstance(said, int) else ""


_REDUCTIONS = {0: "sum", 1: "mean"}
"""MindSpore's numbers (`Reduction` in mindapi/base/types.h)."""


def is_zero(source: Source) -> bool:
    """Whether adding `source` changes nothing."""
    return isinstance(source, Constant) and (source == Constant() or number_of(source) == 0)


def _cone(graph: Graph, result: Source) -> Graph:
    """What makes `result` of the inputs, a graph of its own with names that tell nothing of where it stood."""
    needed = makers_behind(graph, result)
    ops = [op for op in graph.ops if op.name in needed]
    names = {op.name: f"{op.type}-{number}" for number, op in enumerate(ops)}

    def renamed(source: Source) -> Source:
        return OpOutput(names[source.op], source.index) if isinstance(source, OpOutput) else source

    own = tuple(
        Op(names[op.name], op.type, tuple(replaced(s, renamed) for s in op.inputs), op.outputs, op.attributes)
        for op in ops
    )
    return Graph("count", graph.inputs, (), own, renamed(result))


@dataclass(frozen=True)
class Factor:
    """What the loss of a micro-batch is multiplied by, so that the mean over micro-batches is the loss of the whole batch.

    `scale`, times the share of the micro-batch in `count` where that is not None. A micro-batch that counts nothing has a share
    of 0; its loss would be 0 / 0, so it is run on inputs that are all `some`, by name: with these something counts. With `none`
    nothing does (empty where no such inputs are known).
    """

    scale: Fraction
    count: Count | None = None
    some: Mapping[str, float] = field(default_factory=dict)
    none: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_one(self) -> bool:
        return self.scale == 1 and self.count is None


def factor_of_loss(graph: Graph, whole: Graph, rules: Mapping[str, Rule] | None = None) -> Factor | None:
    """The factor of the loss of `graph`, the network at a micro-batch of `whole`; None where one factor is not enough, or the
    loss has another form than `terms_of_loss` tells.

    Errors: UnknownOperatorError.
    """
    terms = terms_of_loss(graph, whole, rules)
    if terms is None:
        return None
    of_samples = [term for term in terms if not term.free] or [FREE]
    if len(of_samples) > 1 or (len(terms) > 1 and not of_samples[0].has_mean_one):
        return None
    return factor_of_term(of_samples[0])


def factor_of_term(term: Term) -> Factor | None:
    """The factor of addends that are `term`; None where no inputs are found with which something counts."""
    if term.count is None:
        return Factor(term.scale)
    cone = term.count.micro
    read = {s.name for op in cone.ops for s in sources_of(op) if isinstance(s, InputRef)}
    kinds = {name: kind for name, kind in cone.inputs if name in read}
    some: Mapping[str, float] | None = None
    none: Mapping[str, float] = {}
    for numbers in uniform_inputs(cone, tuple(kinds)):
        value = float(value_of(cone, {name: filled(kind, numbers[name]) for name, kind in kinds.items()}).item())
        counts = isfinite(value) and value != 0
        if counts and some is None and all(map(_is_valid, kinds.values(), numbers.values())):
            some = numbers
        elif not counts and not none:
            none = numbers
    return None if some is None else Factor(term.scale, term.count, some, none)


def _is_valid(kind: TensorType, number: float) -> bool:
    """Whether a tensor of `kind` may hold `number`, whatever reads it: what indexes is a whole number from 0."""
    if kind.dtype == "bool":
        return number in (0, 1)
    return number >= 0 and ("float" in kind.dtype or number == int(number))
