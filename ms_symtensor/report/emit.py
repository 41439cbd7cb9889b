"""Everything that a plan is written as, in one directory."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ms_symtensor.files.writing import Content
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.program.program import Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.strategy.file import files_of
from ms_symtensor.strategy.folder import DIGESTS_FILE, REPORT_FILE, write
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.targets.exporter import CannotSayError, Planned, Uniform
from ms_symtensor.targets.formats import exporters, operator_strategy, strategy_checkpoint
from ms_symtensor.targets.registry import MINDSPORE, Target
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Written:
    """The names of the files of a plan's folder, the digest of the folder, and which formats were not written, each with why."""

    names: tuple[str, ...]
    digest: str
    unsaid: tuple[str, ...] = ()


@no_garbage_collection()
def write_plan(
    plan: Plan,
    graph: Graph,
    programs: Sequence[Program | StageProgram],
    report: str,
    directory: str | os.PathLike[str],
    uniform: Uniform | None = None,
    target: Target = MINDSPORE,
) -> Written:
    """Write the plan, its graph, the forms of it that can say it, and the `report`, in place of the plan that was there before;
    all or none.

    `programs` are those of the plan (`programs_of`); `uniform`: what a plan in uniform layouts was made of. Errors: InputError if
    the directory cannot be written, or a form that `target` needs cannot say the plan; InvalidStrategyError where MindSpore
    cannot be told the plan.
    """
    planned, unsaid = Planned(plan, graph, programs, uniform), []
    files: dict[str, Content] = dict(files_of(plan, graph))
    for exporter in exporters():
        try:
            files |= exporter.files(planned)
        except CannotSayError as reason:
            if exporter.name in target.needs:
                raise
            unsaid.append(f"{exporter.name} is not written: {reason}")
    files[REPORT_FILE] = report + "\n"
    return Written((*files, DIGESTS_FILE), write(directory, files), tuple(unsaid))


def for_mindspore(plan: Plan, graph: Graph, programs: Sequence[Program | StageProgram]) -> dict[str, Content]:
    """What MindSpore reads: an operator strategy, unless stages are interleaved, and strategy checkpoints."""
    planned = Planned(plan, graph, programs)
    files: dict[str, Content] = {}
    for format_ in (operator_strategy, strategy_checkpoint):
        try:
            files |= format_.EXPORTER.files(planned)
        except CannotSayError:
            continue
    return files
