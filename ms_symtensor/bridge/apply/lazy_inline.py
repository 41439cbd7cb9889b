"""Cells of `@lazy_inline` in a network: MindSpore compiles those that are alike once."""

from typing import Any

from ms_symtensor.bridge.compiler.executor import CELL_MARK, LAZY_INLINE_PREFIX, lazily_inlined

_TRAINED = "#symtensor trains "
"""Before what tells cells apart, behind what the decorator noted of them: no name of Python has it."""


def move_to_network(cell: Any, needed: bool) -> None:
    """Have `cell` as a whole of `@lazy_inline`, if it is `needed` or cells inside are; these are no longer."""
    marked, cells = lazily_inlined(cell), dict(cell.cells_and_names())
    if (needed or marked) and "" not in marked:
        cell.cell_init_args = f"{LAZY_INLINE_PREFIX}{type(cell).__name__}"
    for path in filter(None, marked):
        del cells[path].__dict__[CELL_MARK]


def tell_apart(cell: Any) -> None:
    """Have MindSpore compile cells apart of which other weights train: as one, the gradients of some would not be summed."""
    if all(parameter.requires_grad for parameter in cell.get_parameters()):
        return
    cells = dict(cell.cells_and_names())
    for path in lazily_inlined(cell):
        trained = "".join(str(int(parameter.requires_grad)) for parameter in cells[path].get_parameters())
        cells[path].cell_init_args += f"{_TRAINED}{trained}"


def unite(cell: Any) -> None:
    """Take back what `tell_apart` did."""
    cells = dict(cell.cells_and_names())
    for path in lazily_inlined(cell):
        cells[path].cell_init_args = cells[path].cell_init_args.partition(_TRAINED)[0]
