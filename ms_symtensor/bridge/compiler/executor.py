"""One run of MindSpore's front end over a cell: the optimised graph as a protobuf, the cell left as it was."""

import inspect
import os
import re
import sys
import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import CodeType
from typing import Any

from ms_symtensor.bridge.compiler.constants import shared_slices
from ms_symtensor.bridge.compiler.host import cell_graph_executor, import_mindspore
from ms_symtensor.bridge.compiler.unchecked import tensors_unchecked
from ms_symtensor.errors import CompilerError, EndedBySignal, SymTensorError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.interrupts import interruptible

_FAILURE_DUMPS = "MS_OM_PATH"  # where MindSpore leaves its analysis of a failure; the current directory otherwise
_CHATTER = ("[WARNING]", "[INFO]", "[DEBUG]")
_CAUSES = {
    "The pointer[fg] is null": (
        "a condition of Python is left in the graph, as of a comprehension with `if` (tuple(v for v in … if v is not None)):"
        " write the tuple without"
    ),
    "Cannot export a PyExecute": "Python runs in it, as for a dict that it returns: return a tensor or a tuple of tensors",
    "The method 'GetShapeVector()'": (
        "a tuple stands where a tensor is taken, as in Tensor.expand((2, 3)): use ops.broadcast_to, or pass a tensor"
    ),
    "'For Tensor.transpose, the number of axes": "in a graph Tensor.transpose takes all axes: use swapaxes for two of them",
    "Unsupported input type. For BitXor": "in a graph ^ takes no booleans: use !=",
}
"""What is behind messages of MindSpore that name no cause, by how they begin."""
_PACKAGE = str(Path(__file__).parents[2])
_PLACE = re.compile(r"In file (\S+:\d+)")
_LOGGED_ERROR = re.compile(r"\[ERROR\][^\]]*\] \w+\] (.*)")
_PRECOMPILE_ONLY = "MS_DEV_PRECOMPILE_ONLY"  # MindSpore stops after the front end
_CELL_STATE = (
    "current_phase",
    "compile_phase",
    "arguments_key",
    "parameter_layout_dict",
    "parallel_parameter_name_list",
)
CELL_MARK = "_cell_init_args"  # an attribute that the decorator sets, and cell_attr_register without its prefix
LAZY_INLINE_PREFIX = "lazy_inline_"
RECOMPUTE_SCOPE = "recompute_"  # what `Cell.recompute()` writes before the scope's name
RECOMPUTE_FLAGS = ("output_recompute", "output_no_recompute")  # its flag on that very cell; the latter up to 2.8
_CUT_IN_PLACE = frozenset({"out_channel", "group"})  # attributes of convolutions
_phase_number = count()


def front_end(cell: Any, inputs: Sequence[Any], purpose: str) -> tuple[Any, dict[str, tuple]]:
    """The graph (a `mind_ir_pb2.ModelProto`) that MindSpore makes of `cell(*inputs)`, and its parameter layouts.

    The layouts are empty outside the parallel modes. No parameter is initialised or sliced, nothing stays in
    MindSpore's caches. CompilerError with MindSpore's reason and the user's line if it rejects the cell.
    """
    import_mindspore()
    from mindspore.train import mind_ir_pb2

    executor = cell_graph_executor()
    phase = f"symtensor_{purpose}_{next(_phase_number)}"
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="symtensor_"))
        stack.enter_context(_replaced(os.environ, _PRECOMPILE_ONLY, "1"))
        stack.enter_context(_replaced(os.environ, _FAILURE_DUMPS, scratch))
        stack.enter_context(_no_weights(cell))
        stack.enter_context(_parameter_flags(cell))
        stack.enter_context(shared_slices())
        stack.enter_context(_cell_state(cell))
        stack.enter_context(_primitive_attributes(cell))
        stack.enter_context(_fresh_scopes(cell))
        stack.enter_context(sources_read_once())
        stack.enter_context(tensors_unchecked())
        stack.enter_context(no_garbage_collection())
        log = stack.enter_context(_Log(scratch))
        stack.enter_context(interruptible())
        full_phase = None
        try:
            full_phase, _ = executor.compile(cell, *inputs, phase=phase, do_convert=False)
            model = mind_ir_pb2.ModelProto()
            model.ParseFromString(executor._graph_executor.get_func_graph_proto(full_phase, "mind_ir", False))
            layouts = dict(getattr(cell, "parameter_layout_dict", None) or {})
        except (SymTensorError, EndedBySignal):
            raise
        # MindSpore raises whatever fits its cause: Runtime-, Type-, Value-, Attribute-, NameError and more; functions of the
        # network that run while it is compiled may end the process.
        except (Exception, SystemExit) as error:
            raise CompilerError(f"MindSpore rejects {type(cell).__name__}: {explain(error, log.errors())}") from error
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
    marks = [(c.__dict__, c.__dict__.pop(CELL_MARK)) for _, c in _decorated(cell)]
    try:
        yield
    finally:
        for names, mark in marks:
            names[CELL_MARK] = mark


def parameters_of_shared_blocks(cell: Any) -> frozenset[str]:
    """Names of the parameters of cells that are decorated with `@lazy_inline`."""
    return frozenset(p.name for _, c in _decorated(cell) for p in c.get_parameters())


def lazily_inlined(cell: Any) -> tuple[str, ...]:
    """The paths of the cells that are decorated with `@lazy_inline`."""
    return tuple(path for path, _ in _decorated(cell))


def has_lazy_inline(cell: Any) -> bool:
    """Whether a cell in `cell` is decorated with `@lazy_inline`."""
    return bool(_decorated(cell))


def _decorated(cell: Any) -> list[tuple[str, Any]]:
    marked = ((path, c, str(c.__dict__.get(CELL_MARK, ""))) for path, c in cell.cells_and_names())
    return [(path, c) for path, c, mark in marked if mark.startswith(LAZY_INLINE_PREFIX)]


def explain(error: BaseException, logged: Sequence[str] = ()) -> str:
    """MindSpore's error in one line: its reason (which it may tell in its log only) and the user's line."""
    if isinstance(error, SystemExit):
        return f"a function of the network ended the process: sys.exit({error})"
    lines = [line.strip() for line in str(error).splitlines()]
    text = next((line for line in lines if line and not set(line) <= set("-=# ")), type(error).__name__)
    reasons = [line for line in logged if line not in text]
    if reasons and text.startswith(("Failure", "Failed to export")):
        text = f"{text}: {reasons[0]}"
    cause = next((cause for begin, cause in _CAUSES.items() if text.startswith(begin)), "")
    text = f"{text.rstrip('.')}: {cause}" if cause else text
    places = [match.group(1) for line in lines if (match := _PLACE.search(line))]
    own = [place for place in places if "/mindspore/" not in place and not place.startswith(_PACKAGE)]
    place = own[-1] if own else next(iter(places), "")  # MindSpore tells the outermost call first
    return f"{text} (at {place})" if place else text


class _Log:
    """What MindSpore's libraries write to the standard error stream meanwhile; its errors become part of ours."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "log")
        self._shows_warnings = os.environ.get("GLOG_v", "3") < "3"  # noqa: SIM112 - MindSpore spells it so

    def __enter__(self) -> "_Log":
        sys.stderr.flush()
        self._stream = os.dup(2)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.dup2(file, 2)
        os.close(file)
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._stream, 2)
        os.close(self._stream)
        if failure is None or not issubclass(failure, CompilerError | KeyboardInterrupt):
            lines = self._text().splitlines(keepends=True)
            sys.stderr.write("".join(line for line in lines if self._shows_warnings or not line.startswith(_CHATTER)))

    def errors(self) -> list[str]:
        """The messages of MindSpore's [ERROR] lines, first to last."""
        return [match.group(1).strip() for line in self._text().splitlines() if (match := _LOGGED_ERROR.match(line))]

    def _text(self) -> str:
        with open(self._path, encoding="utf-8", errors="replace") as file:
            return file.read()


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
def _parameter_flags(cell: Any) -> Iterator[None]:
    """A compile marks parameters below `parallel_optimizer_threshold` as never to be sharded by the optimizer."""
    before = [(parameter, parameter.parallel_optimizer) for parameter in cell.get_parameters()]
    try:
        yield
    finally:
        for parameter, sharded in before:
            parameter.parallel_optimizer = sharded


@contextmanager
def sources_read_once() -> Iterator[None]:
    """MindSpore asks for a function's source at every call of it in the network, and Python looks for its end each time."""
    sources: dict[CodeType, tuple[list[str], int]] = {}
    read = inspect.getsourcelines

    def read_once(function: Any) -> tuple[list[str], int]:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is None:
            return read(function)
        if code not in sources:
            sources[code] = read(function)
        return sources[code]

    with _replaced(vars(inspect), "getsourcelines", read_once):
        yield


@contextmanager
def _replaced(names: MutableMapping[str, Any], name: str, value: Any) -> Iterator[None]:
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


@contextmanager
def _primitive_attributes(cell: Any) -> Iterator[None]:
    """MindSpore cuts attributes of some primitives in place, unseen in Python; they are whole again afterwards."""
    try:
        yield
    finally:
        for _, owner in cell.cells_and_names():
            for primitive in owner.__dict__.get("_primitives", {}).values():
                for name in _CUT_IN_PLACE.intersection(getattr(primitive, "attrs", ())):
                    primitive.add_prim_attr(name, primitive.attrs[name])


@contextmanager
def _fresh_scopes(cell: Any) -> Iterator[None]:
    """Operators are named after their place in `cell`, whatever network its children were compiled in before.

    The marks of `recompute()` before them are left as they are then: a plan may be made meanwhile.
    """
    before = [(owner, owner._scope) for _, owner in cell.cells_and_names()]
    for owner, scope in before:
        owner._scope = _mark(scope) or None
    try:
        yield
    finally:
        for owner, scope in before:
            owner._scope = _mark(owner._scope) + (scope or "").removeprefix(RECOMPUTE_SCOPE) or None


def _mark(scope: str | None) -> str:
    return RECOMPUTE_SCOPE if scope is not None and scope.startswith(RECOMPUTE_SCOPE) else ""
