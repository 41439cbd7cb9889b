"""What lies in a stage's memory over a step, and what is alive at its peak."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ms_symtensor.cost.node_time import NodeTime
from ms_symtensor.program.liveness import live_B, lives, program_steps
from ms_symtensor.program.passes import every_pass
from ms_symtensor.program.program import Node, Phase, Program, Role
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.stage_memory import OneMicroBatch, runs_of_stage
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name
from ms_symtensor.timeline.replay import Kind, Span

ACTIVATIONS = "activations"
UPDATE = "states and gradients while parameters are updated"


@dataclass(frozen=True)
class Alive:
    """`count` tensors of one origin that are alive at the peak, `size_B` bytes all together."""

    name: str
    count: int
    size_B: int


@dataclass(frozen=True)
class StageMemory:
    """Bytes of a rank of a stage.

    Attributes:
        at_rest_B: what is there all the time, by what for (`cost.step.MEMORIES`, without activations).
        curve: from which second on how many bytes of activations lie there; ends with the step.
        peak_s: when the peak begins.
        alive: the activations at the peak, the largest first; they add up to it.
    """

    at_rest_B: Mapping[str, int]
    curve: tuple[tuple[float, int], ...]
    peak_s: float
    alive: tuple[Alive, ...]

    @property
    def activations_B(self) -> int:
        """Activations at the peak."""
        return max(size_B for _, size_B in self.curve)

    @property
    def peak_B(self) -> int:
        return sum(self.at_rest_B.values()) + self.activations_B


def stage_memory(
    graph: Graph,
    program: Program | StageProgram,
    memory_B: Mapping[str, int],
    lane: Sequence[Span],
    operators: Sequence[NodeTime],
) -> StageMemory:
    """That of the stage of `program`, whose price says `memory_B` and whose spans are `lane`; `operators` take the time."""
    if isinstance(program, StageProgram):
        points, alive = _of_passes(program, lane)
    else:
        points, alive = _of_nodes(graph, program, lane, operators)
    peak_B = memory_B[ACTIVATIONS]
    if peak_B > max(size_B for _, size_B in points):  # while the optimizer updates (`cost.parameter`)
        ends = [span.start_s for span in lane if span.kind is Kind.END]
        points = [point for point in points if point[0] < ends[0]] + [(ends[0], peak_B)]
        alive = [Alive(UPDATE, 1, peak_B)]
    points.append((lane[-1].end_s, 0))
    at_rest_B = {part: size_B for part, size_B in memory_B.items() if part != ACTIVATIONS}
    ordered = tuple(sorted(alive, key=lambda one: (-one.size_B, one.name)))
    return StageMemory(at_rest_B, tuple(points), max(points, key=lambda point: point[1])[0], ordered)


def _of_nodes(
    graph: Graph, program: Program, lane: Sequence[Span], operators: Sequence[NodeTime]
) -> tuple[list[tuple[float, int]], list[Alive]]:
    """Node by node: each begins when those before it in its pass are done, in its share of the pass."""
    steps, sizes = program_steps(program), {i: t.size_B for i, t in enumerate(program.tensors)}
    of = lives(steps, program.kept)
    bytes_ = live_B(of, sizes, len(steps))
    points: list[tuple[float, int]] = []
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        spans = [span for span in lane if span.kind is kind]
        inside = [n for n, node in enumerate(program.nodes) if (node.phase is Phase.FORWARD) is (kind is Kind.FORWARD)]
        took_s = dict.fromkeys(inside, 0.0)
        for one in operators:
            if one.position in took_s:
                took_s[one.position] += one.time_s
        whole_s, gone_s = sum(took_s.values()), 0.0
        for number in inside:
            share = gone_s / whole_s if whole_s else 0.0
            points.append(
                (spans[0].start_s + share * spans[0].time_s, bytes_[number]) if spans else (0.0, bytes_[number])
            )
            gone_s += took_s[number]
    if not points:
        return [(0.0, 0)], []
    peak = max(range(len(bytes_)), key=bytes_.__getitem__)
    tensors = [tensor for tensor, (first, last) in of.items() if first <= peak <= last]
    ends = [span.start_s for span in lane if span.kind is Kind.END]
    return _one_each([*points, *((end_s, 0) for end_s in ends)]), list(_alive(graph, program, tensors, sizes))


def _of_passes(program: StageProgram, lane: Sequence[Span]) -> tuple[list[tuple[float, int]], list[Alive]]:
    """Pass by pass, the moment of each for as long as it takes."""
    runs, pipeline = runs_of_stage(program), program.pipeline
    one = OneMicroBatch.of(program, runs)
    turns = PipelineSchedule.of(pipeline).turns(program.stage, pipeline.stage_num)
    every = list(every_pass(turns, pipeline.interleave))
    peaks = [peak._replace(moment_B=peak.moment_B + one.sent_B) for peak in one.micro.at_each(runs, every)]
    spans = [span for span in lane if span.kind in (Kind.FORWARD, Kind.BACKWARD)]
    points = [(0.0, peaks[0].weights_B)] if spans[0].start_s else []
    for number, (span, peak) in enumerate(zip(spans, peaks, strict=True)):
        points.append((span.start_s, peak.total_B))
        follows_s = spans[number + 1].start_s if number + 1 < len(spans) else None
        if follows_s is not None and follows_s > span.end_s:  # it waits: the moment is over
            points.append((span.end_s, peaks[number + 1].total_B - peaks[number + 1].moment_B))
    points.append((spans[-1].end_s, 0))
    top = max(peaks, key=lambda peak: peak.total_B)
    sizes = {i: t.size_B for i, t in enumerate(program.micro.tensors)}
    run_of = {block: number for number, run in enumerate(runs) for block in run}
    kept: dict[str, tuple[int, int]] = {}
    for run, waiting in enumerate(top.waiting):
        tensors = [t for t, block in one.micro.waits.items() if run_of.get(block or "", 0) == run]
        for alive in _alive(program.graph, program.micro, tensors, sizes):
            count, size_B = kept.get(alive.name, (0, 0))
            kept[alive.name] = count + waiting * alive.count, size_B + waiting * alive.size_B
    found = [Alive("weights in use", 1, top.weights_B), Alive("of the micro-batch that passes", 1, top.moment_B)]
    found += [Alive(f"{name}, kept", count, size_B) for name, (count, size_B) in kept.items()]
    return points, [alive for alive in found if alive.size_B]


def _one_each(points: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """`points` without those that change nothing, and of those at one moment the largest."""
    found: list[tuple[float, int]] = []
    for at_s, size_B in points:
        if found and found[-1][0] >= at_s:
            found[-1] = (found[-1][0], max(found[-1][1], size_B))
        elif not found or found[-1][1] != size_B:
            found.append((at_s, size_B))
    return found


def _alive(graph: Graph, program: Program, tensors: Iterable[int], sizes: Mapping[int, int]) -> Iterator[Alive]:
    """`tensors` by the operator that made them."""
    maker = {t: node for node in program.nodes for t in node.outputs}
    maker |= {node.scratch: node for node in program.nodes if node.scratch is not None}
    found: dict[str, tuple[int, int]] = {}
    for tensor in tensors:
        name = _origin(graph, maker.get(tensor))
        count, size_B = found.get(name, (0, 0))
        found[name] = count + 1, size_B + sizes[tensor]
    for name, (count, size_B) in found.items():
        yield Alive(name, count, size_B)


def _origin(graph: Graph, node: Node | None) -> str:
    if node is None:
        return "inputs"
    if node.role is Role.WEIGHT:
        return "weights in use"
    op = graph.op_by_name.get(node.op)
    name = node.op if op is None else short_name(op)
    if node.role is Role.BORDER:
        return "received from another stage"
    of = "gradient of " if node.phase is Phase.BACKWARD else ""
    return f"{of}{name}" + ("" if node.role is Role.WORK else f" ({node.kind})")
