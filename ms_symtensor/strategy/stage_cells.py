"""Which cells of a network carry which pipeline stage: MindSpore reads `cell.pipeline_stage` (and `pipeline_segment`)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ms_symtensor.program.pipeline import Pipeline, runs_of_ops
from ms_symtensor.tensor.graph import Graph, ParameterRef

Path = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """The pipeline stage of a cell, and, with interleaving, the number of its run there."""

    stage: int
    segment: int


def stage_cells(graph: Graph, pipeline: Pipeline) -> Mapping[Path, Place]:
    """The outermost cells all of whose operators lie in one run of blocks, by their path from the network, in graph order.

    Lists of cells are never called, so their members are named instead. Functional operators are of no cell but their block's.
    What the network itself owns follows its inputs. With one stage, no cell needs one.
    Errors: those of `runs_of_ops`.
    """
    if pipeline.stage_num == 1:
        return {}
    runs = runs_of_ops(graph, pipeline)
    within: dict[Path, set[int]] = {}
    lists: set[Path] = set()
    for op in graph.ops:
        cell = op.cell or (tuple(op.block.split(".")) if op.block else ())
        for depth in range(1, len(cell) + 1):
            within.setdefault(cell[:depth], set()).update(runs[op.name] if len(runs[op.name]) == 1 else ())
            if cell[depth - 1].isdigit():
                lists.add(cell[: depth - 1])
    found: dict[Path, Place] = {}
    for path, numbers in within.items():
        covered = any(path[:depth] in found for depth in range(1, len(path)))
        if len(numbers) == 1 and path not in lists and not covered:
            (number,) = numbers
            found[path] = Place(number % pipeline.stage_num, number // pipeline.stage_num)
    return found


def parameters_of_several_stages(graph: Graph, pipeline: Pipeline) -> tuple[str, ...]:
    """Parameters that several stages read (tied embeddings). The first stage owns them; the optimizer must not shard them:
    MindSpore sends such a parameter whole and cannot bring the gradient of a shared one together.
    """
    runs = runs_of_ops(graph, pipeline)
    readers: dict[str, set[int]] = {}
    for op in graph.ops:
        for source in graph.tensor_inputs(op):
            if isinstance(source, ParameterRef):
                readers.setdefault(source.name, set()).update(run % pipeline.stage_num for run in runs[op.name])
    return tuple(p.name for p in graph.parameters if len(readers.get(p.name, ())) > 1)
