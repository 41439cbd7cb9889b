"""The formulas behind a plan, symbolic: what each operator costs, and what its collectives cost."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import sympy

from ms_symtensor.algebra.text import formula_latex, formula_text, legend_lines
from ms_symtensor.cluster.collective_time import collective_time_s, group_formula
from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.operator import OperatorFormulas, evaluate, operator_formulas
from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Dims, OpView, Signature, view
from ms_symtensor.program.forward import default_strategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase, Program, Role
from ms_symtensor.report.operators import short_name
from ms_symtensor.report.text import seconds, size
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph, Op, OpOutput, ParameterRef


@dataclass(frozen=True)
class _Explained:
    """One operator under a plan: its dims, its formulas, and their values here."""

    op: Op
    view: OpView
    signature: Signature
    cuts: dict[str, int]
    formulas: OperatorFormulas
    forward_s: float
    backward_s: float


def explain(plan: Plan, graph: Graph, operator: str | None = None, latex: bool = False) -> str:
    """The formulas of the operators of `graph`: of the first of identical blocks, or of those that `operator` names.

    `operator` is a full name, the end of a short one (`query.matmul`) or a type (`MatMul`). InputError if nothing has it.
    """
    cluster = load_cluster(plan.cluster)
    program = partition(graph, plan.stage)
    chosen = _chosen(graph, operator)
    shown: list[str] = []
    used: set[sympy.Basic] = set()
    for op in chosen:
        found = _explained(graph, plan, program, cluster, op)
        formulas = _formulas(found)
        collectives = _collectives(program, cluster, {op.name, *_parameters(graph, op)})
        used |= {symbol for _, _, e in formulas for symbol in e.free_symbols}
        used |= {symbol for _, e, _ in collectives for symbol in e.free_symbols}
        shown.append(_latex(found, formulas, collectives) if latex else _text(found, formulas, collectives))
    if not latex:
        shown.append("\n".join(legend_lines(sympy.Add(*sorted(used, key=str)))))
    return "\n\n".join(part for part in shown if part)


def _chosen(graph: Graph, operator: str | None) -> list[Op]:
    """The operators to explain, one of each short name and type."""
    shardable = [op for op in graph.ops if signature(view(graph, op)).shardable]
    first: dict[tuple[str, str], Op] = {}
    for op in shardable:
        name = short_name(op)
        if operator is None or operator in (op.name, op.type, name) or name.endswith("." + operator):
            key = (op.name if operator == op.name else name, op.type)
            first.setdefault(key, op)
    if not first:
        known = ", ".join(sorted({op.type for op in shardable}))
        raise InputError(
            f"no operator is called {operator!r}: give a full name, the end of one as the report shows it"
            f" (query.matmul), or a type ({known})"
        )
    return list(first.values())


def _explained(graph: Graph, plan: Plan, program: Program, cluster: Cluster, op: Op) -> _Explained:
    seen = view(graph, op)
    sig = signature(seen)
    device_num = plan.device_num
    cuts = cuts_of(seen, sig, plan.stage.strategies.get(op.name) or default_strategy(sig, device_num), device_num)
    products = sum(
        len(n.outputs) for n in program.nodes if n.op == op.name and n.role is Role.WORK and n.phase is Phase.BACKWARD
    )
    formulas = operator_formulas(seen, sig, products)
    costs = evaluate(formulas, sig, [cuts], cluster)
    return _Explained(op, seen, sig, cuts, formulas, float(costs.forward_s[0]), float(costs.backward_s[0]))


Line = tuple[str, str, sympy.Expr]
"""Name, unit, formula."""


def _formulas(found: _Explained) -> list[Line]:
    formulas = found.formulas
    lines: list[Line] = []
    if formulas.forward_flops != 0:
        lines.append(("W", "FLOP", formulas.forward_flops))
    lines += [("T_forward", "s", formulas.forward_s), ("T_backward", "s", formulas.backward_s)]
    lines += [(f"M_in{i}", "B", e) for i, e in enumerate(formulas.inputs_B)]
    lines += [(f"M_out{i}", "B", e) for i, e in enumerate(formulas.outputs_B)]
    return lines


Collected = tuple[str, sympy.Expr, str]
"""Heading, formula in the bytes n, values here."""


def _parameters(graph: Graph, op: Op) -> Iterator[str]:
    """The parameters that `op` reads, casts looked through."""
    for source in graph.tensor_inputs(op):
        while isinstance(source, OpOutput) and graph.op_by_name[source.op].type == "Cast":
            source = graph.tensor_inputs(graph.op_by_name[source.op])[0]
        if isinstance(source, ParameterRef):
            yield source.name


def _collectives(program: Program, cluster: Cluster, causes: set[str]) -> list[Collected]:
    """The collectives of an operator, redistributions of its inputs included, and of the parameters it reads."""
    counts = Counter((c.phase.value, c.kind, c.ranks, c.size_B) for c in program.collectives() if c.op in causes)
    found = []
    for (phase, kind, ranks, size_B), count in counts.items():
        formula = group_formula(cluster, kind, ranks)
        times = f"{count} × " if count > 1 else ""
        here = f"n = {size(size_B)}: {times}{seconds(collective_time_s(cluster, kind, ranks, size_B))}"
        found.append((f"{phase} {kind} over {len(ranks)} ranks ({formula.algorithm})", formula.expression, here))
    return found


def _signature_line(sig: Signature) -> str:
    def dims(tensors: tuple[Dims, ...]) -> str:
        return ", ".join(" ".join(d or "1" for d in tensor) or "scalar" for tensor in tensors)

    return f"{dims(sig.inputs)} -> {dims(sig.outputs)}"


def _dims_line(found: _Explained) -> str:
    parts = []
    for dim in found.signature.mesh:
        degree = found.cuts.get(dim, 1)
        parts.append(f"{dim} = {found.signature.sizes[dim]}" + (f" in {degree} slices" if degree > 1 else ""))
    return ", ".join(parts)


def _text(found: _Explained, formulas: list[Line], collectives: list[Collected]) -> str:
    lines = [f"{found.op.type}  {found.op.name}", f"  {_signature_line(found.signature)}"]
    if found.signature.mesh:
        lines.append(f"  {_dims_line(found)}")
    for name, unit, expression in formulas:
        lines += ["  " + line for line in formula_text(name, expression, unit, legend=False).splitlines()]
    lines.append(f"  here: forward {seconds(found.forward_s)}, backward {seconds(found.backward_s)}")
    for heading, expression, here in collectives:
        lines.append(f"  {heading}")
        lines += ["    " + line for line in formula_text("T", expression, "s", legend=False).splitlines()]
        lines.append(f"    {here}")
    return "\n".join(lines)


def _latex(found: _Explained, formulas: list[Line], collectives: list[Collected]) -> str:
    lines = [f"% {found.op.type} {found.op.name}", f"% {_signature_line(found.signature)}; {_dims_line(found)}"]
    for name, _, expression in formulas:
        head, _, index = name.partition("_")
        subscript = rf"_\mathrm{{{index}}}" if index else ""
        lines.append(rf"\[ {formula_latex(head + subscript, expression)} \]")
    for heading, expression, here in collectives:
        lines += [f"% {heading}; {here}", rf"\[ {formula_latex('T', expression)} \]"]
    return "\n".join(lines)
