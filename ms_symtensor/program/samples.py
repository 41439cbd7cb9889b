"""Whether micro-batches train what the whole batch does: whether the loss is a sum, or a mean, over samples."""

from collections.abc import Collection, Mapping
from enum import Enum

from ms_symtensor.ops.loss import RULES as LOSSES
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import Combine, Signature, view
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, Source, TensorType, sources_of

QUOTIENTS = frozenset({"Div", "RealDiv", "DivNoNan", "InplaceDiv"})


class Holds(Enum):
    """What a tensor holds of the samples; one that holds nothing is the same in every micro-batch."""

    EACH = "each"  # a part for every sample, or every token of one
    SUM = "sum"  # their sum or mean, or what is linear in it
    COUNT = "count"  # one thing of them all that no weight changes, such as the number of tokens that count


def where_samples_meet(graph: Graph, other: Graph, rules: Mapping[str, Rule] | None = None) -> str:
    """The first operator of `graph` at which samples meet otherwise than in the sums of a loss, so that micro-batches would train
    something else; empty if there is none that shapes tell. `other` is the same network at another batch.

    Behind a sum over samples all has to be linear in it. A quotient by what no weight changes is taken for it: that is a weighted
    mean, whose micro-batches are taken to weigh the same.

    Errors: UnknownOperatorError.
    """
    holds: dict[Source, Holds] = {InputRef(name): Holds.EACH for name, _ in graph.inputs}
    weightless: set[Source] = set(holds)
    for op, twin in zip(graph.ops, other.ops, strict=True):
        if all(source in weightless or isinstance(source, Constant) for source in sources_of(op)):
            weightless.update(op.results)
        found = {p: holds[source] for p, source in enumerate(graph.tensor_inputs(op)) if source in holds}
        if not found:
            continue
        results = [(r, grown(a, b)) for r, a, b in zip(op.results, op.outputs, twin.outputs, strict=True)]
        free = weightless.issuperset(op.results)
        if Holds.EACH in found.values():
            if (
                {*found.values()} != {Holds.EACH}
                or any(len(dims) > 1 for _, dims in results)
                or op.type.startswith("BatchNorm")
            ):
                return f"at {op.name} ({op.type}) samples meet, as they would not in micro-batches"
            together = any(not dims and (result in graph.users or result == graph.output) for result, dims in results)
            if together and not free and not adds_up(graph, other, op, found, rules):
                return (
                    f"at {op.name} ({op.type}) samples meet otherwise than in a sum, as they would not in micro-batches"
                )
        elif not free and not is_linear(graph, op, found, rules):
            return (
                f"{op.name} ({op.type}) is not linear in what is summed over the samples, so that micro-batches would train"
                " something else"
            )
        for result, dims in results:
            holds[result] = Holds.EACH if dims else Holds.COUNT if free else Holds.SUM
    return ""


def grown(one: TensorType, other: TensorType) -> tuple[int, ...]:
    """The dims of a tensor that go with the samples."""
    return tuple(i for i, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b)


def adds_up(graph: Graph, other: Graph, op: Op, samples: Collection[int], rules: Mapping[str, Rule] | None) -> bool:
    """Whether the result of `op` is a sum or mean over the samples in its tensor inputs `samples`."""
    if op.type in LOSSES or op.body is not None:
        return True
    sig = signature(view(graph, op), rules)
    twins = other.tensor_inputs(other.op_by_name[op.name])
    for position in samples:
        one, two = graph.type_of(graph.tensor_inputs(op)[position]), other.type_of(twins[position])
        assert one is not None and two is not None
        dims = {sig.inputs[position][i] for i in grown(one, two)}
        if not dims <= {*sig.reduced} - sig.fixed:
            return False
    reads_nothing = not sig.keeps_inputs and not sig.keeps_outputs
    return sig.combine in (Combine.SUM, Combine.MEAN) and (
        sig.bilinear or (reads_nothing and _has_gradient(sig, samples))
    )


def is_linear(graph: Graph, op: Op, found: Mapping[int, Holds], rules: Mapping[str, Rule] | None) -> bool:
    """Whether `op` is linear in the sums among its tensor inputs: their gradients read nothing of them."""
    counts = [position for position, held in found.items() if held is Holds.COUNT]
    if op.type in QUOTIENTS:
        return 1 not in found or (counts == [1] and 0 in found)
    sig = signature(view(graph, op), rules)
    if counts or op.body is not None or not _has_gradient(sig, found):
        return False
    return len(found) == 1 if sig.bilinear else not sig.keeps_outputs and found.keys().isdisjoint(sig.keeps_inputs)


def _has_gradient(sig: Signature, positions: Collection[int]) -> bool:
    return sig.differentiable is None or set(positions) <= set(sig.differentiable)
