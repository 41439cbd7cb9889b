"""Compare a predicted program with the compiled one: collectives, parameters, gradient sums, live activations."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ms_symtensor.bridge.compiled.collectives import CompiledCollective, collectives
from ms_symtensor.bridge.compiled.compiled_memory import compiled_activation_peak_B
from ms_symtensor.bridge.compiled.compiled_stage_memory import compiled_stage_peak_B
from ms_symtensor.bridge.compiled.gather_order import compiled_gather_order
from ms_symtensor.bridge.compiled.gradient_sums import ACCUMULATED, accumulated_sums, gradient_sums
from ms_symtensor.bridge.compiled.idle import collectives_of_zeros
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.cost.overlap import OVERLAPS
from ms_symtensor.program.gather_order import Pair, gather_order
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.program import UNKNOWN_B, Phase, Program
from ms_symtensor.program.stage_memory import stage_activation_peak_B
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.tensor.graph import Graph, ParameterRef, TensorType, flat

Key = tuple[str, str, tuple[int, ...], int]
"""Phase, kind, ranks, bytes: what makes two collectives the same."""


@dataclass(frozen=True)
class Comparison:
    """What was predicted beside what MindSpore compiled, for one rank.

    `differences` are sentences; empty if every collective (kind, ranks, bytes, phase) and every parameter slice agrees, but for
    `of_zeros` compiled ones, which move zeros (`collectives_of_zeros`).
    `unsynchronised` names trainable parameters whose gradient is not summed over exactly the ranks of their slice. Peaks of
    activations are UNKNOWN_B where some tensor's size is known at run time only. `predicted_order`, `compiled_order`: which
    gathers of weights wait for which, where MindSpore is told an order (`cost.overlap`). `predicted_B`, `compiled_B`: of all
    collectives whose size is known at compile time, those of zeros left out.
    """

    rank: int
    predicted_collectives: int
    compiled_collectives: int
    differences: tuple[str, ...]
    predicted_parameters_B: int
    compiled_parameters_B: int
    predicted_activations_B: int
    compiled_activations_B: int
    unsynchronised: tuple[str, ...]
    predicted_order: tuple[Pair, ...] = ()
    compiled_order: tuple[Pair, ...] = ()
    of_zeros: int = 0
    predicted_B: int = 0
    compiled_B: int = 0

    @property
    def equal(self) -> bool:
        return not self.differences and self.predicted_order == self.compiled_order


def compare(graph: Graph, predicted: Program | StageProgram, compiled: CompiledProgram) -> Comparison:
    """Compare both programs of `graph` for rank `compiled.rank`; `predicted` is that of its stage, if there are several."""
    rank = compiled.rank
    ours = predicted.collectives(rank)
    theirs = collectives(compiled)
    # In a network with @lazy_inline, which interleaved stages need, not all that is recomputed has a mark.
    marked = not isinstance(predicted, StageProgram) or predicted.pipeline.interleave == 1
    unmarked = {p.name for p in graph.parameters if p.in_shared_block}  # nor have their gathers
    first = Counter((_phase(c.phase, marked and c.parameter not in unmarked), c.kind, c.ranks, c.size_B) for c in ours)
    second = Counter((_compiled_phase(c, marked), c.kind, c.ranks, _size_B(c)) for c in theirs)
    idle = _of_zeros(compiled, theirs, marked) & (second - first)
    second -= idle
    parameters = [*_parameter_differences(predicted, compiled), *_missing_parameters(predicted, compiled)]
    count = compiled_stage_peak_B if isinstance(predicted, StageProgram) else compiled_activation_peak_B
    return Comparison(
        rank,
        len(ours),
        len(theirs),
        tuple([*_collective_differences(first, second), *parameters]),
        sum(TensorType(p.slice_shape, p.dtype).size_B for p in predicted.parameters.values()),
        sum(p.slice_type.size_B for p in compiled.layouts if p.name in predicted.parameters),
        _activations_B(predicted),
        count(compiled) if predicted.is_known else UNKNOWN_B,
        unsynchronised_of_stage(predicted, compiled)
        if isinstance(predicted, StageProgram)
        else unsynchronised(graph, compiled),
        *_orders(predicted, compiled),
        of_zeros=idle.total(),
        predicted_B=_known_B(first),
        compiled_B=_known_B(second),
    )


def _known_B(found: Counter[Key]) -> int:
    return sum(each_B * number for (*_, each_B), number in found.items() if each_B != UNKNOWN_B)


def _orders(predicted: Program | StageProgram, compiled: CompiledProgram) -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
    """Which gathers wait for which, where the compile asked for an order."""
    if not any(OVERLAPS[name].in_order for name in compiled.config.speed_up) or isinstance(predicted, StageProgram):
        return (), ()
    return tuple(sorted(gather_order(predicted))), tuple(sorted(compiled_gather_order(compiled)))


def unsynchronised(graph: Graph, compiled: CompiledProgram) -> tuple[str, ...]:
    """Trainable parameters whose gradient the compiled program does not sum over exactly the ranks with the same slice.

    Read off the compiled graph: for every gradient among the results, the collectives that parameter's gradient went
    through last. A missing one is what MindSpore leaves out silently.
    """
    trainable = [p.name for p in graph.parameters if p.requires_grad]
    return _summed_otherwise(gradient_sums(compiled, trainable), compiled)


def unsynchronised_of_stage(predicted: StageProgram, compiled: CompiledProgram) -> tuple[str, ...]:
    """The same for the parameters that a pipeline stage owns."""
    owned = [name for name, p in predicted.parameters.items() if p.requires_grad and p.owner is None]
    return _summed_otherwise(accumulated_sums(compiled, owned), compiled)


def _summed_otherwise(sums: Mapping[str, frozenset[int]], compiled: CompiledProgram) -> tuple[str, ...]:
    """The parameters of `sums` that are summed over other ranks than those with the same slice."""
    layouts = compiled.layout_by_name
    return tuple(
        name
        for name, reached in sums.items()
        if name in layouts and reached != frozenset(layouts[name].layout.copies.ranks(compiled.rank))
    )


def _activations_B(predicted: Program | StageProgram) -> int:
    if not predicted.is_known:
        return UNKNOWN_B
    return stage_activation_peak_B(predicted) if isinstance(predicted, StageProgram) else activation_peak_B(predicted)


def _of_zeros(compiled: CompiledProgram, found: Iterable[CompiledCollective], marked: bool) -> Counter[Key]:
    """The collectives that move zeros."""
    idle = collectives_of_zeros(compiled)
    return Counter((_compiled_phase(c, marked), c.kind, c.ranks, _size_B(c)) for c in found if c.name in idle)


def _size_B(collective: CompiledCollective) -> int:
    sizes = collective.input_B, collective.output_B
    return UNKNOWN_B if UNKNOWN_B in sizes else max(sizes)


def _phase(phase: Phase, marked: bool) -> str:
    return Phase.FORWARD.value if phase is Phase.RECOMPUTE and not marked else phase.value


def _compiled_phase(collective: CompiledCollective, marked: bool) -> str:
    if collective.recomputed:
        return _phase(Phase.RECOMPUTE, marked)
    return "backward" if collective.backward else "forward"


def _collective_differences(first: Counter[Key], second: Counter[Key]) -> Iterable[str]:
    for key in sorted((first | second).keys()):
        if first[key] != second[key]:
            phase, kind, ranks, size = key
            of = "unknown size" if size == UNKNOWN_B else f"{size} B"
            yield f"{phase} {kind} of {of} over ranks {list(ranks)}: predicted {first[key]}, compiled {second[key]}"


def _missing_parameters(predicted: Program | StageProgram, compiled: CompiledProgram) -> Iterable[str]:
    """A pipeline stage has exactly the parameters that were predicted for it.

    MindSpore leaves some of other stages in the program's list, which no operator reads.
    """
    if isinstance(predicted, StageProgram):
        read = {s.name for node in compiled.nodes for s in flat(node.inputs) if isinstance(s, ParameterRef)}
        there = {name for name in read & compiled.layout_by_name.keys() if not name.startswith(f"{ACCUMULATED}.")}
        for name in sorted(there ^ set(predicted.parameters)):
            on = "compiled" if name in there else "predicted"
            yield f"parameter {name}: only {on} on stage {predicted.stage}"


def _parameter_differences(predicted: Program | StageProgram, compiled: CompiledProgram) -> Iterable[str]:
    for name, layout in compiled.layout_by_name.items():
        ours = predicted.parameters.get(name)
        if ours is not None and ours.slice_shape != layout.slice_type.shape:
            yield f"parameter {name}: predicted slice {ours.slice_shape}, compiled {layout.slice_type.shape}"
