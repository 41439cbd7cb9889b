"""A loss that adds terms with counts of their own, such as that of a second token: the cells that make one term each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.micro_loss import ADDITIONS, Factor, Reader, factor_of_loss, factor_of_term, is_zero
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, Source, makers_behind, sources_of
from ms_symtensor.tensor.names import scope_of

Path = tuple[str, ...]

_TAIL = ADDITIONS | {"Mul", "Muls", "Div", "RealDiv", "Divs", "Neg", "Cast"}
"""What may follow the terms: element by element, so that terms side by side stay apart."""


@dataclass(frozen=True)
class Part:
    """The cell at `cell` gives one number, part of the loss, which in micro-batches is multiplied by `factor`."""

    cell: Path
    factor: Factor


@dataclass(frozen=True)
class Parts:
    """Cells whose numbers the operators `tail` (by name, with the tensor inputs that come of them) make the loss of."""

    every: tuple[Part, ...]
    tail: Mapping[str, tuple[int, ...]]


def factors_of_loss(graph: Graph, whole: Graph, rules: Mapping[str, Rule] | None = None) -> tuple[Factor, ...]:
    """The factor of the loss of `graph`, the network at a micro-batch of `whole`, or those of its parts; empty if not known.

    Errors: UnknownOperatorError.
    """
    if (factor := factor_of_loss(graph, whole, rules)) is not None:
        return (factor,)
    parts = parts_of_loss(graph, whole, rules)
    return () if parts is None else tuple(part.factor for part in parts.every)


def parts_of_loss(graph: Graph, whole: Graph, rules: Mapping[str, Rule] | None = None) -> Parts | None:
    """The parts of the loss of `graph`, the network at a micro-batch of `whole`; None where a term is not a cell's alone.

    Errors: UnknownOperatorError.
    """
    reader = Reader(graph, whole, rules)
    terms = reader.loss()
    if terms is None or len(terms) < 2:
        return None
    results = dict(_results(graph, reader))
    tail = _tail(graph, frozenset(results))
    found = {path: factor_of_term(next(iter(state))) for path, state in results.values()}
    parts = tuple(Part(path, factor) for path, factor in found.items() if factor is not None)
    made = frozenset().union(*(state for _, state in results.values()))
    if tail is None or len(parts) < len(results) or made != terms or not _are_apart(graph, results, parts):
        return None
    return Parts(parts, tail)


def _results(graph: Graph, reader: Reader) -> Iterator[tuple[Source, tuple[Path, frozenset]]]:
    """The results of the outermost cells that give one number, one term, each with path and term."""
    inside: dict[Path, list[Op]] = {}
    for op in graph.ops:
        path = scope_of(op.name)
        for depth in range(1, len(path) + 1):
            inside.setdefault(path[:depth], []).append(op)
    taken: list[Path] = []
    for path in sorted(inside, key=len):
        if any(path[: len(outer)] == outer for outer in taken):
            continue
        own = {op.name for op in inside[path]}
        given = [r for op in inside[path] for r in op.results if _is_given(graph, r, own)]
        state = reader.states.get(given[0]) if len(given) == 1 and _is_of(graph, given[0], path) else None
        if isinstance(state, frozenset) and len(state) == 1 and graph.op_by_name[given[0].op].outputs[0].shape == ():
            taken.append(path)
            yield given[0], (path, state)


def _is_given(graph: Graph, result: OpOutput, own: set[str]) -> bool:
    """Whether an operator beside `own`, or nobody, reads `result`."""
    return result == graph.output or any(user.name not in own for user, _ in graph.users.get(result, ()))


def _is_of(graph: Graph, result: OpOutput, path: Path) -> bool:
    """Whether a primitive of the cell at `path`, or of one in it, makes `result`: what functions make may bear another's name."""
    op = graph.op_by_name[result.op]
    return bool(op.primitive) and op.cell[: len(path)] == path


def _tail(graph: Graph, results: frozenset[Source]) -> Mapping[str, tuple[int, ...]] | None:
    """What makes the loss of `results` alone; None if more than these is in it, or they are not kept apart."""
    carried: set[Source] = set(results)
    found: dict[str, tuple[int, ...]] = {}
    for op in graph.ops:
        positions = tuple(p for p, source in enumerate(graph.tensor_inputs(op)) if source in carried)
        if not positions:
            continue
        others = [s for s in sources_of(op) if s not in carried]
        if op.type not in _TAIL or op.outputs[0].shape or (op.type in ADDITIONS and not all(map(is_zero, others))):
            return None
        found[op.name] = positions
        carried.update(op.results)
    shared = {(op.cell, op.primitive) for op in graph.ops if op.primitive and op.name not in found}
    own = (graph.op_by_name[name] for name in found)
    return found if graph.output in carried and not any((op.cell, op.primitive) in shared for op in own) else None


def _are_apart(graph: Graph, results: Mapping[Source, tuple[Path, frozenset]], parts: tuple[Part, ...]) -> bool:
    """Whether no part reads the inputs that are filled where another one counts nothing."""
    some = {part.cell: set(part.factor.some) for part in parts}
    for result, (path, _) in results.items():
        sources = (source for name in makers_behind(graph, result) for source in sources_of(graph.op_by_name[name]))
        read = {source.name for source in sources if isinstance(source, InputRef)}
        if any(read & names for cell, names in some.items() if cell != path):
            return False
    return True
