"""What people call operators: by the attributes of the cells that own them."""

import re
from fnmatch import fnmatchcase

from ms_symtensor.tensor.graph import Op

SHORT_FORMS = {"attn": "attention", "ffn": "feed_forward", "mlp": "feed_forward"}
"""What many networks call the parts of a block, and their names in the model zoo."""


def scope_of(name: str) -> tuple[str, ...]:
    """The attribute names of the cells in which MindSpore runs the operator `name`, from the network on."""
    return tuple(part.split("-", 1)[0] for part in name.split("/")[1:-1])


def path_of(op: Op) -> tuple[str, ...]:
    """The attribute names from the network to `op`, or the parts of its full name where it has no attribute."""
    path = (*op.cell, op.primitive) if op.primitive else ()
    if not path:
        path = (*scope_of(op.name), op.name.rsplit("/", 1)[-1])
    return path


def short_name(op: Op) -> str:
    """The operator as its owner calls it, `attention.query.matmul`, without its block; or the end of its full name, without the
    number that MindSpore gives it. Operators of blocks that are alike are called alike.
    """
    path = path_of(op)
    block = tuple(op.block.split(".")) if op.block else ()
    depth = len(block)
    # What no cell owns may stand in the scope of another block of the same list.
    beside = not op.primitive and path[: depth - 1] == block[:-1] and "".join(path[depth - 1 : depth]).isdigit()
    if path[:depth] == block or (block and beside):
        path = path[depth:]
    return ".".join(path) if op.primitive else re.sub(r"-op\d+$", "", ".".join(path))


def is_called(op: Op, pattern: str) -> bool:
    """Whether `pattern` (`*` any characters; `.` and `/` are alike) is the name of `op`: with its block, without, or the end of
    one; or its full name in MindSpore. Usual short forms of a cell's name (SHORT_FORMS) stand for that too.
    """
    plain = pattern.replace("/", ".")
    long = ".".join(SHORT_FORMS.get(part, part) for part in plain.split("."))
    names = (".".join(path_of(op)), short_name(op), op.name.replace("/", "."))
    return any(fnmatchcase(name, form + wanted) for name in names for wanted in {plain, long} for form in ("", "*."))
