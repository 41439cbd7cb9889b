"""One run of MindSpore's front end over a cell: the optimised graph as a protobuf, and the cell left as it was found."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

from ms_symtensor.bridge.host import cell_graph_executor, import_mindspore
from ms_symtensor.errors import CompilerError

_PRECOMPILE_ONLY = "MS_DEV_PRECOMPILE_ONLY"  # MindSpore stops after the front end
_CELL_STATE = ("current_phase", "compile_phase", "arguments_key", "parameter_layout_dict", "parallel_parameter_name_list")
_LAZY_INLINE = "_cell_init_args"  # an attribute that only the decorator sets
_phase_number = count()


def front_end(cell: Any, inputs: Sequence[Any], purpose: str) -> tuple[Any, dict[str, tuple]]:
    """The graph (an `anf_ir_pb2.ModelProto`) that MindSpore's front end makes of `cell(*inputs)`, and its parameter layouts.

    The layouts are empty outside the parallel modes. No parameter is initialised or sliced, nothing stays in MindSpore's
    caches. CompilerError with MindSpore's reason and the user's line if it rejects the cell.
    """
    import_mindspore()
    from mindspore.train import anf_ir_pb2

    executor = cell_graph_executor()
    phase = f"symtensor_{purpose}_{next(_phase_number)}"
    with _environment(_PRECOMPILE_ONLY, "1"), _no_weights(cell), _cell_state(cell):
        full_phase = None
        try:
            full_phase, _ = executor.compile(cell, *inputs, phase=phase, do_convert=False)
            model = anf_ir_pb2.ModelProto()
            model.ParseFromString(executor._graph_executor.get_func_graph_proto(full_phase, "anf_ir"))
            layouts = dict(getattr(cell, "parameter_layout_dict", None) or {})
        except CompilerError:
            raise
        except Exception as error:  # MindSpore raises whatever fits it: Runtime-, Type-, Value-, Attribute-, NameError...
            raise CompilerError(f"MindSpore rejects {type(cell).__name__}: {explain(error)}") from error
        finally:
            full_phase = full_phase or cell.phase_cache.get(phase)
            cell.phase_cache.pop(phase, None)
            if full_phase is not None and full_phase in cell.compile_cache:
                cell.compile_cache.discard(full_phase)
                executor._graph_executor.del_net_res(cell, {full_phase})
    return model, layouts


@contextmanager
def without_lazy_inline(cell: Any) -> Iterator[None]:
    """Cells decorated with `@lazy_inline` are inlined while this is open, so that one graph holds all operators."""
    marks = [(c.__dict__, c.__dict__.pop(_LAZY_INLINE)) for _, c in cell.cells_and_names() if _LAZY_INLINE in c.__dict__]
    try:
        yield
    finally:
        for names, mark in marks:
            names[_LAZY_INLINE] = mark


def explain(error: BaseException) -> str:
    """MindSpore's error in one line: its first sentence, and where in the user's code it arose."""
    lines = [line.strip() for line in str(error).splitlines()]
    text = next((line for line in lines if line and not set(line) <= set("-=# ")), type(error).__name__)
    place = next((line for line in lines if line[:1].isdigit() is False and line.startswith(("In file", "# 0 In file"))), "")
    if not place:
        place = next((line[line.index("In file") :] for line in reversed(lines) if "In file" in line), "")
    place = place[place.index("In file") :].removeprefix("In file").strip() if place else ""
    return f"{text} (at {place})" if place else text


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _no_weights(cell: Any) -> Iterator[None]:
    """MindSpore initialises parameters, or cuts them to this rank's slices, at the end of a compile: not here."""
    from mindspore.parallel import _utils as parallel_utils

    with ExitStack() as stack:
        stack.enter_context(_replaced(cell.__dict__, "init_parameters_data", lambda *_, **__: {}))
        for name in ("_slice_parameter", "_init_optimizer_state"):
            if hasattr(parallel_utils, name):
                stack.enter_context(_replaced(vars(parallel_utils), name, lambda *_: None))
        yield


@contextmanager
def _replaced(names: dict[str, Any], name: str, value: Any) -> Iterator[None]:
    existed, before = name in names, names.get(name)
    names[name] = value
    try:
        yield
    finally:
        if existed:
            names[name] = before
        else:
            del names[name]


@contextmanager
def _cell_state(cell: Any) -> Iterator[None]:
    before = {name: cell.__dict__[name] for name in _CELL_STATE if name in cell.__dict__}
    try:
        yield
    finally:
        for name in _CELL_STATE:
            cell.__dict__.pop(name, None)
        cell.__dict__.update(before)
