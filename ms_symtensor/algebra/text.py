"""Formulas for people: plain text with units and a legend, and LaTeX."""

from typing import Any

import sympy
from sympy.core.function import Function
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from ms_symtensor.algebra.named import named_in
from ms_symtensor.algebra.symbols import definition, is_defined


def formula_text(name: str, expression: sympy.Expr, unit: str = "", width: int = 100, legend: bool = True) -> str:
    """`name [unit] = …`, long sums broken before a plus, cases one a line, then what each symbol means (`legend`).

    Example:
        T [s] = 2·alpha_node + 2·n/(p_node·B_node)
        where
          alpha_node  [s]    latency of one step at level 'node'
          …
    """
    head = f"{name} [{unit}] = " if unit else f"{name} = "
    lines = _broken(head, sympy.sympify(expression), width)
    if legend:
        lines += legend_lines(expression)
    return "\n".join(lines)


def formula_latex(name: str, expression: sympy.Expr) -> str:
    r"""`name = …` in LaTeX, without surrounding dollars; `name` is LaTeX itself, e.g. `T_\mathrm{AllReduce}`."""
    expression = sympy.sympify(expression)
    latex_names = {s: definition(s).latex for s in expression.free_symbols if is_defined(s) and definition(s).latex}
    return f"{name} = {sympy.latex(expression, symbol_names=latex_names)}"


def plain(expression: sympy.Expr) -> str:
    """The expression on one line: `2·n·(p_node - 1)/(p_node·B_node)`."""
    return str(_PlainPrinter().doprint(sympy.sympify(expression)))


def legend_lines(*expressions: sympy.Expr) -> list[str]:
    """`where`, one line for each named function, `paid(E, K) = …`, and one for each symbol of the expressions and of these: name,
    unit, meaning; sorted by name.
    """
    given = [sympy.sympify(e) for e in expressions]
    found = {s for e in given for s in e.free_symbols}
    functions = []
    for kind in named_in(*given):
        arguments = sympy.symbols(kind.title, positive=True, seq=True)
        meaning = kind.definition(*arguments)
        found |= meaning.free_symbols - set(arguments)
        functions.append(f"  {kind.__name__}({kind.title}) = {plain(meaning)}")
    symbols = sorted(filter(is_defined, found), key=lambda s: s.name.lower())
    if not symbols:
        return []
    rows = [(s.name, f"[{definition(s).unit}]", definition(s).meaning) for s in symbols]
    name_width, unit_width = (max(len(row[i]) for row in rows) for i in (0, 1))
    return [
        "where",
        *functions,
        *(f"  {a:{name_width}}  {b:{unit_width}}  {c}" for a, b, c in rows),
    ]


def _broken(head: str, expression: sympy.Expr, width: int) -> list[str]:
    indent = " " * (len(head) if len(head) <= 24 else 4)
    printer = _PlainPrinter()
    if isinstance(expression, sympy.Piecewise):
        cases = []
        for value, condition in expression.args:
            where = "otherwise" if condition == sympy.true else f"if {printer.doprint(condition)}"
            cases += [*_broken(f"{where}: ", value, width - 2)]
        return [head.rstrip(), *("  " + line for line in cases)]
    line = head + printer.doprint(expression)
    if len(line) <= width:
        return [line]
    if isinstance(expression, sympy.Max | sympy.Min):
        inner = [_broken("", a, width - 4) for a in sorted(expression.args, key=sympy.default_sort_key)]
        body = [f"  {text}{',' if i + 1 < len(inner) and last else ''}"
                for i, block in enumerate(inner)
                for text, last in zip(block, [False] * (len(block) - 1) + [True], strict=True)]  # fmt: skip
        return [f"{head}{'max' if isinstance(expression, sympy.Max) else 'min'}(", *(f"  {b}" for b in body), "  )"]
    if not isinstance(expression, sympy.Add):
        return [line]
    lines, current = [], head
    for index, term in enumerate(printer.ordered_terms(expression)):
        text = printer.doprint(term)
        sign = ("- " if text.startswith("-") else "+ ") if index else ""
        text = sign + (text.removeprefix("-") if index else text)
        if index and len(current) + len(text) + 1 > width:
            lines.append(current.rstrip())
            current = indent
        current += text + " "
    return [*lines, current.rstrip()]


class _PlainPrinter(StrPrinter):
    """sympy's one-line printer with · for products, ^ for powers, and ⌈ ⌉."""

    def ordered_terms(self, expression: sympy.Add) -> list[sympy.Expr]:
        return list(self._as_ordered_terms(expression))

    def _print_Mul(self, expr: sympy.Mul) -> str:
        return str(super()._print_Mul(expr)).replace("*", "·")

    def _print_Pow(self, expr: sympy.Pow, rational: bool = False) -> str:
        return str(super()._print_Pow(expr, rational)).replace("**", "^")

    def _print_ceiling(self, expr: sympy.ceiling) -> str:
        return f"⌈{self._print(expr.args[0])}⌉"

    def _print_floor(self, expr: sympy.floor) -> str:
        return f"⌊{self._print(expr.args[0])}⌋"

    def _print_Max(self, expr: sympy.Max) -> str:
        return f"max({', '.join(self._print(a) for a in sorted(expr.args, key=sympy.default_sort_key))})"

    def _print_Min(self, expr: sympy.Min) -> str:
        return f"min({', '.join(self._print(a) for a in sorted(expr.args, key=sympy.default_sort_key))})"

    def _print_Relational(self, expr: Any) -> str:
        operator = {"<=": "≤", ">=": "≥", "==": "=", "!=": "≠"}.get(expr.rel_op, expr.rel_op)
        left, right = (self.parenthesize(a, PRECEDENCE["Relational"]) for a in (expr.lhs, expr.rhs))
        return f"{left} {operator} {right}"

    def _print_Piecewise(self, expr: sympy.Piecewise) -> str:
        cases = [f"{self._print(v)} {'otherwise' if c == sympy.true else 'if ' + self._print(c)}" for v, c in expr.args]
        return "{" + "; ".join(cases) + "}"

    def _print_Function(self, expr: Function) -> str:
        return f"{expr.func.__name__}({', '.join(self._print(a) for a in expr.args)})"
