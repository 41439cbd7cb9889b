"""What a backward pass that the user wrote (`bprop` of a cell) reads of what it is given."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from ms_symtensor.tensor.graph import BPROP_INPUTS, BPROP_OUTPUTS

_FORM_ALONE = {"dtype", "shape", "zeros_like", "ones_like", "rank", "size", "ndim"}
"""Functions and properties to which a tensor's form is enough."""


def read_by(bprop: Callable[..., Any]) -> tuple[str, ...]:
    """Whether `bprop(*inputs, out, dout)` reads values of the cell's inputs, and of its result: BPROP_INPUTS, BPROP_OUTPUTS.

    Both where its source is not to be had.
    """
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(bprop))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return BPROP_INPUTS, BPROP_OUTPUTS
    if not isinstance(function, ast.FunctionDef) or function.args.vararg is not None:
        return BPROP_INPUTS, BPROP_OUTPUTS
    names = [argument.arg for argument in function.args.args if argument.arg != "self"]
    read = set(_values(function))
    found = {BPROP_INPUTS: names[:-2], BPROP_OUTPUTS: names[-2:-1]}
    return tuple(what for what, of in found.items() if not read.isdisjoint(of))


def _values(node: ast.AST) -> Iterator[str]:
    """The names in `node` of which more is read than the form."""
    if isinstance(node, ast.Call) and _name(node.func) in _FORM_ALONE:
        return
    if isinstance(node, ast.Attribute) and node.attr in _FORM_ALONE:
        return
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _values(child)


def _name(function: ast.expr) -> str:
    """The last name of what is called: `F.zeros_like`, `ops.ZerosLike()`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
