"""Recompute on the blocks of a network, and off again: MindSpore itself has no way back from `cell.recompute()`."""

from typing import Any

_UNDO = "_symtensor_before_recompute"  # on a cell whose recompute was set here
_CELL_STATE = (
    "_scope",
    "_has_config_recompute",
    "_recompute_cell",
    "_func_graph_flags",
    "output_recompute",
    "output_no_recompute",
)
_PRIMITIVE_ATTRIBUTE = "recompute_comm_op"


def set_recompute(block: Any, communication: bool) -> None:
    """`block.recompute()`; its collectives are computed again too where `communication` is True."""
    cells = [owner for _, owner in block.cells_and_names()]
    before = [
        (owner, {name: owner.__dict__[name] for name in _CELL_STATE if name in owner.__dict__}) for owner in cells
    ]
    for _, state in before:
        if isinstance(state.get("_func_graph_flags"), dict):
            state["_func_graph_flags"] = dict(state["_func_graph_flags"])
    block.recompute(mp_comm_recompute=communication)
    block.__dict__[_UNDO] = before


def is_recomputed(block: Any) -> bool:
    """Whether the user has configured recompute on `block` or a cell in it."""
    return _UNDO not in block.__dict__ and any(
        c.__dict__.get("_has_config_recompute") for _, c in block.cells_and_names()
    )


def unset_recompute(cell: Any) -> None:
    """Take back what `set_recompute` did to blocks of `cell`."""
    for _, block in cell.cells_and_names():
        for owner, state in block.__dict__.pop(_UNDO, ()):
            for name in _CELL_STATE:
                owner.__dict__.pop(name, None)
            owner.__dict__.update(state)
            owner.__dict__["_cells"].pop("_recompute_cell", None)  # some versions keep it among the children
            for primitive in owner.__dict__.get("_primitives", {}).values():
                if primitive is not None and _PRIMITIVE_ATTRIBUTE in primitive.attrs:
                    primitive.del_prim_attr(_PRIMITIVE_ATTRIBUTE)
