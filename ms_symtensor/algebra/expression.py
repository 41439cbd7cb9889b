"""From an expression to a fast numpy function: compiled once, then evaluated on arrays."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import sympy
import sympy.tensor.tensor  # sympy does so at its first sum, in the middle of what is timed
from numpy.typing import ArrayLike
from sympy.printing.numpy import NumPyPrinter

from ms_symtensor.algebra.named import expanded

Value = Any  # a number or an array of them
Compiled = Callable[..., Value]


def compile_expression(expressions: sympy.Expr | Mapping[str, sympy.Expr], symbols: Iterable[sympy.Symbol]) -> Compiled:
    """A function of keyword arguments, one per symbol (by name): numbers or arrays, which follow numpy's broadcasting.

    It returns the value of the expression, or for a mapping a dict of the values under the same keys. An expression in
    which no symbol occurs gives a plain number. The compiled function is kept: asking again for the same expressions
    costs a look-up.

    Errors: ValueError if an expression contains a symbol that is not in `symbols`; TypeError, on the call, for a
    missing or unknown argument.
    """
    names = tuple(symbols)
    if isinstance(expressions, Mapping):
        return _compiled(tuple((key, sympy.sympify(e)) for key, e in expressions.items()), names)
    return _compiled(((None, sympy.sympify(expressions)),), names)


@lru_cache(maxsize=4096)
def _compiled(expressions: tuple[tuple[str | None, sympy.Expr], ...], symbols: tuple[sympy.Symbol, ...]) -> Compiled:
    expressions = tuple((key, expanded(expression)) for key, expression in expressions)
    for key, expression in expressions:
        missing = sorted(s.name for s in expression.free_symbols - set(symbols))
        if missing:
            label = "the expression" if key is None else f"expression {key!r}"
            raise ValueError(f"{label} contains {', '.join(missing)}, not among the arguments")
    function = _function([e for _, e in expressions], symbols)

    if len(expressions) == 1 and expressions[0][0] is None:
        return lambda **arguments: function(**arguments)[0]
    keys = tuple(key for key, _ in expressions)
    return lambda **arguments: dict(zip(keys, function(**arguments), strict=True))


def _function(expressions: list[sympy.Expr], symbols: tuple[sympy.Symbol, ...]) -> Compiled:
    """What `sympy.lambdify` makes, in a fraction of its time: a search compiles some twenty formulas."""
    printed = NumPyPrinter(_SETTINGS).doprint
    arguments, values = ", ".join(symbol.name for symbol in symbols), ", ".join(map(printed, expressions))
    scope: dict[str, Any] = dict(_NUMPY)
    exec(f"def compiled_expression({arguments}):\n    return [{values}]", scope)  # of what this package has made
    compiled: Compiled = scope["compiled_expression"]
    return compiled


def _maximum(values: Iterable[ArrayLike], axis: int) -> Any:
    return reduce(np.maximum, values)


def _minimum(values: Iterable[ArrayLike], axis: int) -> Any:
    return reduce(np.minimum, values)


def _select(conditions: list[ArrayLike], choices: list[ArrayLike], default: float) -> Any:
    """numpy.select for conditions and choices of different shapes, plain numbers included."""
    found: Any = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        found = choice if condition is True else np.where(condition, choice, found)
    return found[()] if isinstance(found, np.ndarray) else found


# What sympy prints for Max, Min and Piecewise calls these names; numpy's own refuse a mix of numbers and arrays.
_NUMPY = {**vars(np), "reduce": reduce, "amax": _maximum, "amin": _minimum, "select": _select}
# Terms and factors stay in the order in which sympy keeps them: sorting them takes as long as printing.
_SETTINGS = {"fully_qualified_modules": False, "inline": True, "order": "none"}
