"""Recompute on the blocks of a network, and off again: MindSpore itself has no way back from `cell.recompute()`."""

import operator
from typing import Any

from ms_symtensor.bridge.compiler.executor import RECOMPUTE_FLAGS, RECOMPUTE_SCOPE
from ms_symtensor.program.settings import Recompute

_UNDO = "_symtensor_before_recompute"  # on a cell whose recompute was set here
_CELL_STATE = ("_scope", "_has_config_recompute", "_recompute_cell", "_func_graph_flags", *RECOMPUTE_FLAGS)
_WORK, _COMMUNICATION = "recompute", "recompute_comm_op"
"""What MindSpore marks primitives with: whether their work, and the collectives around them, are recomputed."""
_MARKS = (_WORK, _COMMUNICATION, "slice_activation")


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


def is_marked(block: Any) -> bool:
    """Whether the user says of `block`, or of a cell or a primitive in it, whether it is recomputed."""
    return _UNDO not in block.__dict__ and any(
        owner.__dict__.get("_has_config_recompute") or any(_WORK in p.attrs for p in _primitives(owner))
        for _, owner in block.cells_and_names()
    )


def recomputed_by_hand(cell: Any) -> str | None:
    """The first cell in `cell` that the user has recomputed, or one of whose primitives; None if there is none."""
    ours: set[str] = set()
    for name, owner in cell.cells_and_names():
        if _UNDO in owner.__dict__ or name.rpartition(".")[0] in ours:
            ours.add(name)
        elif owner.__dict__.get("_has_config_recompute") or any(p.attrs.get(_WORK) for p in _primitives(owner)):
            return name or type(owner).__name__
    return None


def unset_recompute(cell: Any, by_hand: bool = False) -> None:
    """Take back what `set_recompute` did to blocks of `cell`; with `by_hand`, every `recompute()` that the user wrote too."""
    for _, block in cell.cells_and_names():
        for owner, state in block.__dict__.pop(_UNDO, ()):
            for name in _CELL_STATE:
                owner.__dict__.pop(name, None)
            owner.__dict__.update(state)
            _unmark(owner)
    if by_hand:
        for _, owner in cell.cells_and_names():
            _unset_by_hand(owner)
        for weight in cell.get_parameters():
            weight.parallel_optimizer_comm_recompute = False


def _unset_by_hand(owner: Any) -> None:
    """`owner` as MindSpore makes it."""
    owner.__dict__.update(_has_config_recompute=False, _recompute_cell=None)
    for name in RECOMPUTE_FLAGS:
        owner.__dict__.pop(name, None)
        (owner.__dict__.get("_func_graph_flags") or {}).pop(name, None)
    scope = owner.__dict__.get("_scope")
    if scope is not None and scope.startswith(RECOMPUTE_SCOPE):
        owner.__dict__["_scope"] = scope.removeprefix(RECOMPUTE_SCOPE) or None
    _unmark(owner)


def _unmark(owner: Any) -> None:
    owner.__dict__["_cells"].pop("_recompute_cell", None)  # some versions keep it among the children
    for primitive in _primitives(owner):
        for mark in _MARKS:
            if mark in primitive.attrs:
                primitive.del_prim_attr(mark)


def _primitives(owner: Any) -> list[Any]:
    return [p for p in owner.__dict__.get("_primitives", {}).values() if p is not None]
