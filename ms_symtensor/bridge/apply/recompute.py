"""Recompute on the blocks of a network, and off again: MindSpore itself has no way back from `cell.recompute()`."""

import operator
from typing import Any

from ms_symtensor.program.settings import Recompute

_UNDO = "_symtensor_before_recompute"  # on a cell whose recompute was set here
_CELL_STATE = (
    "_scope",
    "_has_config_recompute",
    "_recompute_cell",
    "_func_graph_flags",
    "output_recompute",
    "output_no_recompute",
)
_WORK, _COMMUNICATION = "recompute", "recompute_comm_op"
"""What MindSpore marks primitives with: whether their work, and the collectives around them, are computed again."""


def set_recompute(block: Any, chosen: Recompute) -> None:
    """`block.recompute()`, but for what `chosen` keeps; or `recompute()` of the operators alone that it names."""
    before = [
        (owner, {name: owner.__dict__[name] for name in _CELL_STATE if name in owner.__dict__})
        for _, owner in block.cells_and_names()
    ]
    for _, state in before:
        if isinstance(state.get("_func_graph_flags"), dict):
            state["_func_graph_flags"] = dict(state["_func_graph_flags"])
    if not chosen.only:
        block.recompute(mp_comm_recompute=chosen.communication)
    block.__dict__[_UNDO] = before
    for name in chosen.only:
        primitive_in(block, name).recompute()
    for name in chosen.kept:
        primitive_in(block, name).recompute(False)
    for name in chosen.kept_communication:
        primitive_in(block, name).add_prim_attr(_COMMUNICATION, False)


def primitive_in(block: Any, name: str) -> Any:
    """The primitive that is called `name` inside `block`, None if there is none."""
    try:
        return operator.attrgetter(name)(block)
    except AttributeError:
        return None


def is_recomputed(block: Any) -> bool:
    """Whether the user has configured recompute on `block`, or on a cell or a primitive in it."""
    return _UNDO not in block.__dict__ and any(
        owner.__dict__.get("_has_config_recompute") or any(_WORK in p.attrs for p in _primitives(owner))
        for _, owner in block.cells_and_names()
    )


def unset_recompute(cell: Any) -> None:
    """Take back what `set_recompute` did to blocks of `cell`."""
    for _, block in cell.cells_and_names():
        for owner, state in block.__dict__.pop(_UNDO, ()):
            for name in _CELL_STATE:
                owner.__dict__.pop(name, None)
            owner.__dict__.update(state)
            owner.__dict__["_cells"].pop("_recompute_cell", None)  # some versions keep it among the children
            for primitive in _primitives(owner):
                for mark in (_WORK, _COMMUNICATION):
                    if mark in primitive.attrs:
                        primitive.del_prim_attr(mark)


def _primitives(owner: Any) -> list[Any]:
    return [p for p in owner.__dict__.get("_primitives", {}).values() if p is not None]
