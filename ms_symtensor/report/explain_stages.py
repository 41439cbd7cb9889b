"""The formulas of a pipelined step, with their numbers, for people: how the stages make the step, and what each holds."""

from ms_symtensor.cost.explanation_text import number
from ms_symtensor.program.stage_memory import stage_peak
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.report.text import table
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

TIME = "M max(s) + (sum(s) - max(s)) / v + once, M micro-batches, s the seconds of the stages for one of them"
RUNS = ", v = {} model chunks per stage; s with what is sent between these"
ACTIVATIONS = "weights + sum over runs (waiting * kept) + moment"
LATEX = (
    r"\[ T = M \max_i s_i + (\sum_i s_i - \max_i s_i) / v + T_\mathrm{once} = %s\,\mathrm{s} \]",
    r"\[ M_\mathrm{activations} = M_\mathrm{weights} + \sum_r n_r M_{\mathrm{kept},r} + M_\mathrm{moment} \]",
)


def stages_explained(plan: Plan, graph: Graph, latex: bool = False) -> str:
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
    head = ("stage", "weights", "waiting", "kept", "moment", "activations")
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
