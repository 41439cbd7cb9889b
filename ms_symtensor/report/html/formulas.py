"""The formulas behind a plan, as MathML with their numbers: of the step, and of the operators that take most of it."""

from collections.abc import Iterator

import sympy

from ms_symtensor.algebra.named import named_in
from ms_symtensor.algebra.symbols import definition, is_defined
from ms_symtensor.cost.explain import OperatorExplanation, explain_step
from ms_symtensor.cost.step import TIMES
from ms_symtensor.cost.terms import Term
from ms_symtensor.report.html.markup import Cell, Html, element, folded, joined, number, section, table
from ms_symtensor.report.html.mathml import mathml
from ms_symtensor.report.text import seconds, size
from ms_symtensor.tensor.names import short_name
from ms_symtensor.timeline.step import Step

SHOWN = 10
"""Operators whose formulas are shown."""
LONGEST = 220
"""Longer formulas are left to `symtensor explain`, in operations of sympy."""


def formulas_section(step: Step) -> Html:
    """The page's part with formulas."""
    explained = explain_step(step.graph, step.plan.whole, step.plan.planned_for)
    ranked = sorted(explained.operators, key=_takes_s, reverse=True)[:SHOWN]
    shown = joined(_operator(step, one) for one in ranked)
    terms = [term for one in ranked for term in one.terms if term.part in TIMES]
    return section(
        "formulas",
        "Formulas",
        "Every time and byte is a symbolic expression of the network's dims, the cuts and the cluster's numbers. These are the"
        f" {len(ranked)} kinds of operators that take most of a step; symtensor explain DIR prints all.",
        _of_step(step),
        shown,
        folded("What the symbols mean", _legend(step, terms)),
    )


def _of_step(step: Step) -> Html:
    names = sympy.symbols([f"T_{name}" for name in step.plan.prediction.time_s])
    found = [mathml(sympy.Add(*names, evaluate=False), "T_step")]
    if step.plan.pipeline is not None and len(step.seconds) > 1:
        M, v, most, whole, start, end = sympy.symbols("M v s_max s_all T_start T_end")
        found.append(mathml(sympy.Add(start, M * most, (whole - most) / v, end, evaluate=False), "T_step"))
        found.append(
            element(
                "p",
                f"M = {step.plan.micro_batch_num} micro-batches, v = {step.plan.pp_interleave_num} model chunks; s: seconds of a"
                f" stage for one micro-batch, s_max {seconds(max(s.each_s for s in step.seconds))} of the slowest and s_all"
                f" {seconds(sum(s.each_s for s in step.seconds))} of all; T_start and T_end: what is done once per step and is"
                " not hidden by waiting.",
                class_="small",
            )
        )
    parts = sympy.symbols([f"M_{name}" for name in step.plan.prediction.memory_B])
    found.append(mathml(sympy.Add(*parts, evaluate=False), "M_peak"))
    return element("div", *found, class_="formula")


def _operator(step: Step, of: OperatorExplanation) -> Html:
    name = short_name(step.graph.op_by_name[of.names[0]])
    alike = f" × {len(of.names)}" if len(of.names) > 1 else ""
    cuts = dict(of.cuts)
    dims = ", ".join(f"{dim} = {n}" + (f" in {cuts[dim]} slices" if dim in cuts else "") for dim, n in of.sizes)
    title = joined([
        element("b", name), element("span", f" {of.type}{alike}", class_="dim"), element("code", of.signature),
        element("span", seconds(_takes_s(of)), class_="right"),
    ])  # fmt: skip
    terms = [_term(term) for term in of.terms if term.part in TIMES or term.part == "activations"]
    return folded(title, element("p", dims, class_="small"), *terms)


def _term(term: Term) -> Html:
    letter = {"s": "T", "B": "M"}[term.unit]
    value = seconds(term.value) if term.unit == "s" else size(int(term.value))
    times = f"{term.count} × " if term.count > 1 else ""
    head = element("p", f"{term.label} = {times}", number(term.value, value), class_="term")
    if sympy.count_ops(term.expression) > LONGEST:
        return joined(
            [head, element("p", "The formula is long: symtensor explain DIR --operator prints it.", class_="small")]
        )
    return joined([head, element("div", mathml(term.expression, f"{letter}_{term.part}"), class_="formula")])


def _takes_s(of: OperatorExplanation) -> float:
    return len(of.names) * sum(of.total(part) for part in TIMES)


def _legend(step: Step, terms: list[Term]) -> Html:
    expressions = [term.expression for term in terms]
    symbols = {s for e in expressions for s in e.free_symbols}
    functions: list[tuple[Cell, ...]] = []
    for kind in named_in(*expressions):
        arguments = sympy.symbols(kind.title, positive=True, seq=True)
        symbols |= kind.definition(*arguments).free_symbols - set(arguments)
        functions.append((Html(mathml(kind(*arguments)).text), "", "", mathml(kind.definition(*arguments))))
    rows: list[tuple[Cell, ...]] = [*functions, *_symbols(step, symbols)]
    return table(("symbol", "unit", "value", "meaning"), rows, left=4)


def _symbols(step: Step, symbols: set[sympy.Symbol]) -> Iterator[tuple[Html, str, Html, str]]:
    values = step.plan.planned_for.values
    for symbol in sorted(filter(is_defined, symbols), key=lambda s: s.name.lower()):
        of = definition(symbol)
        value = number(float(values[symbol]), f"{values[symbol]:.4g}") if symbol in values else Html("")
        yield mathml(symbol), of.unit, value, of.meaning
