"""What a plan's step is made of, for people: its parts and costliest operators, or the formulas of those asked for."""

import math
from collections.abc import Sequence

from ms_symtensor.cost.explain import OperatorExplanation, StepExplanation, explain_step
from ms_symtensor.cost.explanation_text import step_text, to_latex, to_text
from ms_symtensor.errors import InputError
from ms_symtensor.report.costliest import costliest_text
from ms_symtensor.report.explain_stages import stages_explained
from ms_symtensor.report.text import seconds, size
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name

MORE = "Formulas with their numbers: --operator NAME for one of these, --all for every operator"


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
    stages = None if plan.pipeline is None else stages_explained(plan, graph, latex)
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
    of = "a step" if plan.pipeline is None else "one micro-batch and of what is done once per step, all stages together"
    return f"Costliest operators, times of {of}\n" + costliest_text(step.operators, graph)


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
