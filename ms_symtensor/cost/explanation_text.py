"""Explanations for people: plain text and LaTeX, formulas with their numbers beside them."""

from collections.abc import Iterator

import sympy

from ms_symtensor.algebra.text import formula_latex, formula_text, legend_lines
from ms_symtensor.cost.explain import OperatorExplanation, StepExplanation
from ms_symtensor.cost.step import MEMORIES, TIMES
from ms_symtensor.cost.terms import Term

_HEADINGS = {
    "work": "operations", "compute": "computation", "communication": "communication", "synchronisation": "synchronisation",
    "optimizer": "update of the parameters", "parameters": "parameters", "gradients": "gradients",
    "optimizer_states": "optimizer states", "activations": "kept for the backward pass",
}  # fmt: skip
_LETTERS = {"s": "T", "B": "M", "FLOP": "W"}


def to_text(of: OperatorExplanation | StepExplanation, legend: bool = True) -> str:
    """The formulas on lines of their own, each followed by its value; `legend` says what the symbols mean."""
    blocks = [step_text(of)] if isinstance(of, StepExplanation) else []
    operators = of.operators if isinstance(of, StepExplanation) else (of,)
    blocks += ["\n".join(_operator_lines(operator)) for operator in operators]
    if legend:
        blocks.append("\n".join(_legend(of)))
    return "\n\n".join(blocks)


def to_latex(of: OperatorExplanation | StepExplanation) -> str:
    """One displayed formula a term, its value at the end, under a comment that names the operator."""
    operators = of.operators if isinstance(of, StepExplanation) else (of,)
    blocks = [_step_latex(of)] if isinstance(of, StepExplanation) else []
    return "\n\n".join([*blocks, *("\n".join(_operator_latex(o)) for o in operators)])


def number(value: float, unit: str) -> str:
    """`1.234e-03 s`, `536870912 B`: seconds in four digits, bytes and operations in full."""
    return f"{value:.3e} {unit}" if unit == "s" else f"{value:.0f} {unit}"


def step_text(of: StepExplanation) -> str:
    """The time and the memory of a step, each with its parts on lines of their own."""
    lines = [f"step time {number(of.cost.step_time_s, 's')}, the sum over all operators of"]
    lines += [f"  {_HEADINGS[part]:26} {number(of.cost.time_s[part], 's')}" for part in TIMES]
    lines.append(f"peak memory {number(of.cost.peak_memory_B, 'B')}, of which")
    names = _HEADINGS | {"activations": "activations at the peak", "buffers": f"buffers of {of.buffers.label}"}
    lines += [f"  {names[part]:26} {number(of.cost.memory_B[part], 'B')}" for part in MEMORIES]
    return "\n".join(lines)


def _operator_lines(of: OperatorExplanation) -> Iterator[str]:
    yield _title(of)
    yield f"  {of.signature}"
    if of.sizes:
        yield "  " + _dims(of)
    part = ""
    for term in of.terms:
        if term.part != part:
            part = term.part
            yield f"  {_HEADINGS[part]}"
        yield from (
            "    " + line for line in formula_text(term.label, term.expression, term.unit, legend=False).splitlines()
        )
        times = f"{term.count} × " if term.count > 1 else ""
        yield f"      = {times}{number(term.value, term.unit)}"


def _title(of: OperatorExplanation) -> str:
    return f"{of.type}  {of.names[0]}" + (f" and {len(of.names) - 1} alike" if len(of.names) > 1 else "")


def _dims(of: OperatorExplanation) -> str:
    cuts = dict(of.cuts)
    return ", ".join(f"{d} = {n}" + (f" in {cuts[d]} slices" if d in cuts else "") for d, n in of.sizes)


def _legend(of: OperatorExplanation | StepExplanation) -> list[str]:
    operators = of.operators if isinstance(of, StepExplanation) else (of,)
    return legend_lines(*(term.expression for operator in operators for term in operator.terms))


def _step_latex(of: StepExplanation) -> str:
    parts = " + ".join(rf"T_\mathrm{{{part}}}" for part in TIMES)
    values = " + ".join(f"{of.cost.time_s[part]:.3e}" for part in TIMES)
    memory = " + ".join(rf"M_\mathrm{{{_HEADINGS.get(part, part).replace(' ', '~')}}}" for part in MEMORIES)
    sizes = " + ".join(str(of.cost.memory_B[part]) for part in MEMORIES)
    return (
        rf"\[ T = {parts} = {values} = {of.cost.step_time_s:.3e}\,\mathrm{{s}} \]"
        + "\n"
        + rf"\[ M = {memory} = {sizes} = {of.cost.peak_memory_B}\,\mathrm{{B}} \]"
    )


def _operator_latex(of: OperatorExplanation) -> Iterator[str]:
    yield f"% {_title(of)}"
    yield f"% {of.signature}; {_dims(of)}"
    for term in of.terms:
        name = rf"{_LETTERS[term.unit]}_\mathrm{{{term.part.replace('_', '~')}}}"
        times = rf"{term.count} \times " if term.count > 1 else ""
        yield f"% {_HEADINGS[term.part]}: {term.label}"
        yield rf"\[ {formula_latex(name, term.expression)} = {times}{_latex_number(term)} \]"


def _latex_number(term: Term) -> str:
    unit = rf"\,\mathrm{{{term.unit}}}"
    if term.unit != "s" or term.value == 0:
        return f"{term.value:.0f}{unit}"
    digits, exponent = f"{term.value:.3e}".split("e")
    return rf"{digits} \cdot 10^{{{sympy.Integer(int(exponent))}}}{unit}"
