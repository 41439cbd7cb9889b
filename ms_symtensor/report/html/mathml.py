"""Formulas as MathML, as browsers draw it (MathML Core)."""

import re
from typing import Any

import sympy
from sympy.printing.mathml import MathMLPresentationPrinter

from ms_symtensor.algebra.symbols import definition, is_defined
from ms_symtensor.report.html.markup import Html

_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "eta": "η", "tau": "τ"}
_NAME = re.compile(r"^\\?([A-Za-z]+)(?:_\\mathrm\{(.*)\}|_\{?(\w+)\}?)?$")


def mathml(expression: sympy.Expr, left: str = "") -> Html:
    """`left` (a name with a subscript, `T_compute`) = `expression`, as a block. A sum may go on in the next line."""
    node = _Printer()._print(sympy.sympify(expression))
    head = f"{_name(left)}<mo>=</mo>" if left else ""
    pieces = [f'<math display="block"><mrow>{body}</mrow></math>' for body in _pieces(node, head)]
    return Html(pieces[0] if len(pieces) == 1 else f'<span class="sum">{"".join(pieces)}</span>')


def _pieces(node: Any, head: str) -> list[str]:
    """The terms of a sum, each with its sign; what is no sum as a whole."""
    parts = node.childNodes if node.tagName == "mrow" else [node]
    if not any(_is_sign(part) for part in parts[1:]):
        return [head + node.toxml()]
    found = [head]
    for number, part in enumerate(parts):
        if number and _is_sign(part):
            part.setAttribute("form", "infix")
            found.append("")
        found[-1] += part.toxml()
    return found


def _is_sign(part: Any) -> bool:
    return part.tagName == "mo" and part.firstChild.data in ("+", "-")


def _name(name: str) -> str:
    base, _, below = name.partition("_")
    return f"<msub><mi>{base}</mi><mtext>{below}</mtext></msub>" if below else f"<mi>{base}</mi>"


class _Printer(MathMLPresentationPrinter):
    """sympy's printer with the symbols' own names."""

    def _print_Symbol(self, sym: sympy.Symbol, style: str = "plain") -> Any:
        written = (definition(sym).latex if is_defined(sym) else None) or sym.name
        found = _NAME.match(written)
        if found is None:
            return self._named(sym.name, "")
        base, *below = found.groups()
        return self._named(_GREEK.get(base, base), next((part for part in below if part), "").replace("\\_", "_"))

    def _print_Float(self, expr: sympy.Float) -> Any:
        whole = int(expr)
        return self._print(sympy.Integer(whole)) if whole == expr else super()._print_Float(expr)

    def _print_Piecewise(self, expr: sympy.Piecewise) -> Any:
        brace, rows = self.dom.createElement("mo"), self.dom.createElement("mtable")
        brace.appendChild(self.dom.createTextNode("{"))
        for value, condition in expr.args:
            row = self.dom.createElement("mtr")
            is_rest = condition == sympy.true
            last = [self._words("otherwise")] if is_rest else [self._words("if"), self._print(condition)]
            for inside in (self._print(value), *last):
                cell = self.dom.createElement("mtd")
                cell.appendChild(inside)
                row.appendChild(cell)
            rows.appendChild(row)
        whole = self.dom.createElement("mrow")
        whole.appendChild(brace)
        whole.appendChild(rows)
        return whole

    def _words(self, text: str) -> Any:
        found = self.dom.createElement("mtext")
        found.appendChild(self.dom.createTextNode(text))
        return found

    def _named(self, base: str, below: str) -> Any:
        letter = self.dom.createElement("mi")
        letter.appendChild(self.dom.createTextNode(base))
        if not below:
            return letter
        whole, small = self.dom.createElement("msub"), self.dom.createElement("mtext")
        small.appendChild(self.dom.createTextNode(below))
        whole.appendChild(letter)
        whole.appendChild(small)
        return whole
