"""The formulas behind a plan, for people: of the whole step, or of the operators that are asked for."""

from ms_symtensor.cost.explain import OperatorExplanation, StepExplanation, explain_step
from ms_symtensor.cost.explanation_text import to_latex, to_text
from ms_symtensor.errors import InputError
from ms_symtensor.report.explain_stages import stages_explained
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name


def explain(plan: Plan, graph: Graph, operator: str | None = None, latex: bool = False) -> str:
    """The formulas of a step of `graph` under `plan`, with their numbers, or of the operators that `operator` names.

    `operator` is a full name, the end of a short one (`query.matmul`) or a type (`MatMul`); operators that cost the same
    are shown once. Operators of pipeline stages are those of one micro-batch. InputError if nothing has it.
    """
    step = explain_step(graph, plan.whole, plan.planned_for)
    title = [f"% {_degrees(plan)}" if latex else _degrees(plan)] if operator is None else []
    if operator is None and plan.pipeline is None:
        return "\n\n".join([*title, to_latex(step) if latex else to_text(step)])
    chosen = [o for o in step.operators if operator is None or _is_called(graph, o, operator)]
    if not chosen:
        raise InputError(_unknown(step, operator or ""))
    head = [*title, stages_explained(plan, graph, latex)] if operator is None else []
    if latex:
        return "\n\n".join([*head, *map(to_latex, chosen)])
    return "\n\n".join([*head, *(to_text(o, legend=o is chosen[-1]) for o in chosen)])


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
