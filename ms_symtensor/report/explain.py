"""What a plan's step is made of, for people: its parts and costliest operators, or the formulas of those asked for."""

import math
from collections import Counter
from collections.abc import Sequence

from ms_symtensor.cost.explain import OperatorExplanation, StepExplanation, explain_step
from ms_symtensor.cost.explanation_text import number, step_text, to_latex, to_text
from ms_symtensor.cost.step import TIMES
from ms_symtensor.errors import InputError
from ms_symtensor.program.stage_memory import stage_peak
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.report.text import seconds, share, size, table
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name

MORE = "Formulas with their numbers: --operator NAME for one of these, --all for every operator"
ROWS = 15
"""So many names of operators are shown one by one."""
HEAD = ("operator", "type", "count", *TIMES, "all", "share")
TIME = "M max(s) + (sum(s) - max(s)) / v + once, M micro-batches, s the seconds of the stages for one of them"
RUNS = ", v = {} model chunks per stage; s with what is sent between these"
ACTIVATIONS = "weights + sum over model chunks (in flight * kept) + moment"
LATEX = (
    r"\[ T = M \max_i s_i + (\sum_i s_i - \max_i s_i) / v + T_\mathrm{once} = %s\,\mathrm{s} \]",
    r"\[ M_\mathrm{activations} = M_\mathrm{weights} + \sum_r n_r M_{\mathrm{kept},r} + M_\mathrm{moment} \]",
)


def explain(plan: Plan, graph: Graph, operator: str | None = None, latex: bool = False, every: bool = False) -> str:
    """The parts of a step of `graph` under `plan` and its costliest operators, or formulas with their numbers: of the operators
    that `operator` names, or of the step and `every` operator, which LaTeX without `operator` always has.

    `operator` is a full name, the end of a short one (`query.matmul`) or a type (`MatMul`); operators that cost the same
    are shown once. Operators of pipeline stages are those of one micro-batch. InputError if nothing has it.
    """
    step = explain_step(graph, plan.whole, plan.planned_for)
    if operator is not None:
        chosen = [o for o in step.operators if _is_called(graph, o, operator)]
        if not chosen:
            raise InputError(_unknown(step, operator))
        return _formulas(chosen, latex)
    title = f"% {_degrees(plan)}" if latex else _degrees(plan)
    stages = None if plan.pipeline is None else _stages_explained(plan, graph, latex)
    if not (latex or every):
        head = stages if stages is not None else "\n".join([step_text(step), *_otherwise(plan, step)])
        return "\n\n".join([title, head, _costliest(step, graph, plan), MORE])
    if stages is None:
        return "\n\n".join([title, to_latex(step) if latex else to_text(step)])
    return "\n\n".join([title, stages, _formulas(step.operators, latex)])


def _formulas(chosen: Sequence[OperatorExplanation], latex: bool) -> str:
    return "\n\n".join(to_latex(o) if latex else to_text(o, legend=o is chosen[-1]) for o in chosen)


def _otherwise(plan: Plan, step: StepExplanation) -> list[str]:
    """What the plan says of the step, where that is not the sum over the operators: a run-time hides, fuses or stores some."""
    said, cost = plan.prediction, step.cost
    if math.isclose(said.step_time_s, cost.step_time_s) and said.peak_memory_B == cost.peak_memory_B:
        return []
    hidden = "".join(f", {seconds(s)} of {part} hidden" for part, s in said.hidden_s.items())
    return [
        f"the plan says {seconds(said.step_time_s)} and {size(said.peak_memory_B)}: as {plan.runtime} runs it{hidden}"
    ]


def _costliest(step: StepExplanation, graph: Graph, plan: Plan) -> str:
    """The ROWS names whose operators take longest, and all others in one row: how many operators, and the time of all."""
    times: dict[tuple[str, str], Counter[str]] = {}
    count: Counter[tuple[str, str]] = Counter()
    for one in step.operators:
        of_one = {part: one.total(part) for part in TIMES}
        for name in one.names:
            called = (short_name(graph.op_by_name[name]), one.type)
            times.setdefault(called, Counter()).update(of_one)
            count[called] += 1
    ordered = sorted(times, key=lambda called: -times[called].total())
    whole = sum(found.total() for found in times.values())
    cells = [(*called, str(count[called]), *_cells(times[called], whole)) for called in ordered[:ROWS]]
    if others := ordered[ROWS:]:
        together = sum((times[called] for called in others), Counter[str]())
        cells.append(("all others", "", str(sum(count[o] for o in others)), *_cells(together, whole)))
    of = "a step" if plan.pipeline is None else "one micro-batch and of what is done once per step, all stages together"
    return f"Costliest operators, times of {of}\n" + table(cells, HEAD, right=range(2, len(HEAD)))


def _cells(times: Counter[str], whole: float) -> tuple[str, ...]:
    parts = (seconds(times[part]) if times[part] else "" for part in TIMES)
    return (*parts, seconds(times.total()), share(times.total(), whole))


def _degrees(plan: Plan) -> str:
    names = ("data_parallel", "model_parallel", "context_parallel", "expert_parallel", "pipeline_stages")
    return ", ".join(f"{name} {getattr(plan, name)}" for name in names)


def _is_called(graph: Graph, of: OperatorExplanation, operator: str) -> bool:
    if operator in (of.type, *of.names):
        return True
    names = {short_name(graph.op_by_name[name]) for name in of.names}
    return any(name == operator or name.endswith("." + operator) for name in names)


def _unknown(step: StepExplanation, operator: str) -> str:
    known = ", ".join(sorted({o.type for o in step.operators}))
    return (
        f"no operator is called {operator!r}: give a full name, the end of one as the report shows it"
        f" (query.matmul), or a type ({known})"
    )


def _stages_explained(plan: Plan, graph: Graph, latex: bool = False) -> str:
    """Step time, memory of the fullest stage, and the activations of every stage of `plan`, which has several."""
    assert plan.pipeline is not None
    found, programs = plan.prediction, partition_stages(graph, plan.stages, plan.pipeline)
    if latex:
        return "\n".join((LATEX[0] % f"{found.step_time_s:.3e}", LATEX[1], *map(_latex_row, programs)))
    runs = RUNS.format(plan.pipeline.interleave) if plan.pipeline.interleave > 1 else ", v = 1"
    lines = [f"step time {number(found.step_time_s, 's')} = {TIME}{runs}"]
    lines += [f"  {part:26} {number(value, 's')}" for part, value in found.time_s.items()]
    lines.append(f"peak memory of the fullest stage {number(found.peak_memory_B, 'B')}, of which")
    lines += [f"  {part.replace('_', ' '):26} {number(value, 'B')}" for part, value in found.memory_B.items()]
    lines.append(f"activations of a stage = {ACTIVATIONS}, in bytes:")
    head = ("stage", "weights", "in flight", "kept", "moment", "activations")
    lines.append(table([_row(p) for p in programs], head, right=range(6)))
    lines.append(
        "What follows is one micro-batch on its way through all stages; weights are cast and gathered, and gradients summed over"
        " the ranks, once per step."
    )
    return "\n".join(lines)


def _parts(program: StageProgram) -> tuple[str, str, str, str, str]:
    """Weights, how many micro-batches wait, what one of them keeps, the moment, and the peak that they make; of several
    model chunks one by one.
    """
    peak = stage_peak(program)
    waiting, kept = (", ".join(map(str, one)) for one in (peak.waiting, peak.kept_B))
    return str(peak.weights_B), waiting, kept, str(peak.moment_B), str(peak.total_B)


def _row(program: StageProgram) -> tuple[str, ...]:
    return (str(program.stage), *_parts(program))


def _latex_row(program: StageProgram) -> str:
    peak = stage_peak(program)
    kept = " + ".join(rf"{n} \cdot {each}" for n, each in zip(peak.waiting, peak.kept_B, strict=True))
    return rf"\[ {peak.total_B} = {peak.weights_B} + {kept} + {peak.moment_B} \] % stage {program.stage}"
