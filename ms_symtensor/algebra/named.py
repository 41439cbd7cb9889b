"""Functions with names of their own, so that long formulas stay readable: printed as `paid(E, K)`, computed as defined."""

from collections.abc import Callable
from typing import ClassVar

import sympy


class Named(sympy.Function):
    """A positive function of its arguments and of constants: subclasses define it, and `title` names the arguments for people."""

    title: ClassVar[str]
    is_extended_positive = True

    definition: ClassVar[Callable[..., sympy.Expr]]
    """What it is in terms of its arguments: a class method of every subclass."""


def expanded(expression: sympy.Expr) -> sympy.Expr:
    """`expression` with the definitions of named functions in their places."""
    return expression.replace(lambda e: isinstance(e, Named), lambda e: e.definition(*e.args))


def named_in(*expressions: sympy.Expr) -> list[type[Named]]:
    """The named functions that occur, by name."""
    return sorted({type(f) for e in expressions for f in e.atoms(Named)}, key=lambda kind: kind.__name__)
