"""Networks by name: one of the model zoo, or a factory in the user's own file. What `Plan.source` says is built here."""

import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ms_symtensor.bridge.apply.apply import remove
from ms_symtensor.bridge.apply.constructing import as_on_ascend
from ms_symtensor.bridge.apply.pipeline_network import at_batch, batch_of
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.capture.scopes import fresh_scopes
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.errors import EndedBySignal, InputError, SymTensorError
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.source import require_function, require_trusted, zoo_options
from ms_symtensor.tensor.graph import Graph

_WITHOUT_KERNEL = re.compile(r"^The kernel \w+ unregistered|^Create kernelmod for op \w+ failed")
_OF_USER = "_symtensor_of_user"  # on the modules that are made here
Network = tuple[Any, tuple[Any, ...]]
"""A forward cell with its loss, and its inputs, of global shape; they may be without values."""


def load_network(source: Mapping[str, str]) -> Network:
    """The network that `source` describes: `{"factory": "file.py:function"}`, or of the zoo `{"model": name}` with options, and
    `{"network": name}` with sizes for those that MindSpore captures.

    With `"replace_shard": "True"` it is given without the strategies that its factory wrote, with `"batch_size"` its inputs are
    for so many samples.

    A factory is run: it is one that the user names, or `require_trusted` comes first.

    InputError if there is no such network; CompilerError if MindSpore is not installed.
    """
    if "factory" in source:
        cell, inputs = load_factory(source["factory"])
        if source.get("replace_shard") == "True":
            remove(cell, by_hand=True)
        return cell, at_batch(inputs, int(source.get("batch_size", batch_of(inputs))))
    if "network" in source:
        return _captured(source)
    if "model" not in source:
        raise InputError(
            "the plan was made from a saved graph and does not say how its network is built: apply it in your own program"
            " (ms_symtensor.load_plan(dir).apply(cell, *inputs)), or plan file.py:factory"
        )
    import_mindspore()
    from model_zoo import dimensions_of
    from model_zoo.network import build

    return build(dimensions_of(source["model"], **zoo_options(source)))


def _captured(source: Mapping[str, str]) -> Network:
    """The network of the zoo that `source` names and MindSpore captures."""
    import_mindspore()
    from model_zoo.captured import CAPTURED, build, changed_sizes

    name = source["network"]
    if name not in CAPTURED:
        raise InputError(f"the plan's source names the network {name!r}, and the zoo has none: plan again")
    changed_sizes(name, {key: value for key, value in source.items() if key != "network"})
    with as_on_ascend():
        return build(source)


def load_planned(plan: Plan) -> Network:
    """The network of `plan`, as `load_network`, and `require_trusted` before."""
    require_trusted(plan)
    return load_network(plan.source)


def load_with_graph(plan: Plan) -> tuple[Any, tuple[Any, ...], Graph]:
    """The network of `plan`, as `load_planned`, and its graph."""
    require_trusted(plan)
    return with_graph(plan.source)


def with_graph(source: Mapping[str, str]) -> tuple[Any, tuple[Any, ...], Graph]:
    """The network that `source` describes, as `load_network`, and its graph.

    A network of the zoo has its graph from the builder, which makes the one that would be captured, in a fraction of the time.
    """
    cell, inputs = load_network(source)
    if "model" in source:
        from model_zoo import dimensions_of
        from model_zoo.builder import build_graph

        return cell, inputs, build_graph(dimensions_of(source["model"], **zoo_options(source)))
    with fresh_scopes(cell):
        return cell, inputs, capture(cell, *inputs)


def whole_graph(plan: Plan) -> Graph:
    """The graph of the network that `plan` describes at the whole batch."""
    require_trusted(plan)
    return with_graph({**plan.source, "batch_size": str(plan.global_batch_size)})[2]


def load_factory(place: str) -> Network:
    """What the function `name` of the file in `place`, `"file.py:name"`, returns: `(cell, inputs)`.

    It runs as on the cluster (see `as_on_ascend`). The file's folder is importable meanwhile and afterwards, as it is for
    `python file.py`. InputError with what is wrong.
    """
    require_function(place)
    import_mindspore()
    path, _, name = place.rpartition(":")
    function = _function(Path(path), name, place)
    try:
        made = _made(function)
    except (SymTensorError, EndedBySignal):
        raise
    except (Exception, SystemExit) as error:  # anything that the user's own code can raise
        raise InputError(
            f"{place}, called without arguments, failed ({type(error).__name__}: {_first_line(error)}){_where(error, Path(path))}"
        ) from error
    return _network(made, place)


def _made(function: Callable[[], Any]) -> Any:
    """What the factory `function` returns. Weights get values when they are read, so that a network may be larger than the memory
    of this machine. Where a constructor computes with them, which MindSpore refuses then, the factory runs again with values.
    """
    from mindspore.nn.utils import no_init_parameters

    try:
        with as_on_ascend(), no_init_parameters():
            return function()
    except RuntimeError as error:
        if _is_raised_by_others(error):
            raise
        with as_on_ascend():
            return function()


def _is_raised_by_others(error: RuntimeError) -> bool:
    """Whether Python code that is not MindSpore's own raised `error`."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (last.line or "").startswith("raise") and "mindspore" not in Path(last.filename).parts


def run_file(place: str) -> None:
    """Run the file of the factory `place`, which registers the operators that its network has of its own."""
    require_function(place)
    import_mindspore()
    path, _, name = place.rpartition(":")
    _function(Path(path), name, place)


def _require_readable(path: Path) -> None:
    """InputError if this Python, or MindSpore beside it, cannot pass `path` on: in a C locale without UTF-8 mode."""
    try:
        os.fsencode(path)
        os.path.abspath(path).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            f"{path} has letters that this Python cannot pass on, which reads file names as {sys.getfilesystemencoding()}:"
            " set PYTHONUTF8=1, or LC_ALL=C.UTF-8"
        ) from None


def _function(path: Path, name: str, place: str) -> Any:
    _require_readable(path)
    if not path.is_file():
        raise InputError(
            f"there is no file {path}: give file.py:factory, a function that returns (cell, inputs); of a plan, put the file"
            ' there, or change "source" in plan.json'
        )
    module_name = _module_name(path)
    spec = importlib.util.spec_from_file_location(module_name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file: give file.py:factory")
    module = importlib.util.module_from_spec(spec)
    setattr(module, _OF_USER, True)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = module  # MindSpore looks up the source of a cell's class there
    try:
        with as_on_ascend():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # anything that the user's own code can raise
        if before is not None:
            sys.modules[module_name] = before
        else:
            del sys.modules[module_name]
        if isinstance(error, EndedBySignal):
            raise
        raise InputError(
            f"{path} cannot be imported ({type(error).__name__}: {_first_line(error)}){_where(error, path)}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{path} has no function {name!r}: {place} must name one that returns (cell, inputs)")
    return function


def _module_name(path: Path) -> str:
    """The name of the user's file, or another one where a library goes by it: `json.py` takes the place of no `json`."""
    there = sys.modules.get(path.stem)
    return path.stem if there is None or hasattr(there, _OF_USER) else f"{path.stem}_of_user"


def _network(made: Any, place: str) -> Network:
    from mindspore.nn import Cell

    if not isinstance(made, tuple | list) or len(made) != 2 or not isinstance(made[0], Cell):
        if inspect.iscoroutine(made):
            made.close()  # or Python warns that nothing has awaited it
        what = type(made).__name__
        if isinstance(made, tuple | list) and made:
            what += f" of {len(made)}, the first a {type(made[0]).__name__}"
        raise InputError(f"{place} returned a {what}: it must return (cell, inputs), a network and a tuple of tensors")
    cell, inputs = made
    return cell, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


def _where(error: BaseException, path: Path) -> str:
    """The last line of the user's own files, those in the folder of `path`, that was run before `error`; "" without one."""
    folder = path.resolve().parent
    called = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [(file, line) for file, line in called if folder in file.parents and "site-packages" not in file.parts]
    return f" at {own[-1][0].name}:{own[-1][1]}" if own else ""


def _first_line(error: BaseException) -> str:
    line = ""
    for part in str(error).strip().splitlines():
        line = f"{line} {part.strip()}".strip()
        if line.count("(") <= line.count(")"):  # MindSpore writes tensors on several lines
            break
    line = line or type(error).__name__
    if not _WITHOUT_KERNEL.search(line):
        return line
    return f"{line} Constructors run on this machine's CPU, which lacks that kernel: make the constant with numpy, or with ops"
