"""MindSpore's Ascend compiler on the machine at hand, with or without an NPU.

The CPU wheel of MindSpore contains the whole parallel front end; it lacks only the device. Here the device target
"Ascend" is made known to it, and a cluster of any size is described to it through the switch that MindSpore has for
compiling without one. Where CANN is installed, MindSpore's own simulation (MS_SIMULATION_LEVEL) is used instead.
"""

import ctypes
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ms_symtensor.errors import CompilerError, InputError

WORLD_GROUP = "hccl_world_group"
_ASCEND = "Ascend"

# MsContext::RegisterInitFunc(const std::string &, void (*)(MsContext *)), with the old and the new ABI of std::string
_OLD_ABI_SYMBOL = "_ZN9mindspore9MsContext16RegisterInitFuncERKSsPFvPS0_E"
_NEW_ABI_SYMBOL = (
    "_ZN9mindspore9MsContext16RegisterInitFuncERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPFvPS0_E"
)
_STD_HASH_SEED = 0xC70F6907  # of libstdc++'s std::hash<std::string>

_kept_alive: list[object] = []  # memory that MindSpore may still point into
_ascend_registered = False


@cache
def import_mindspore() -> Any:
    """The module `mindspore`, its warnings silenced unless the user set GLOG_v; CompilerError if missing."""
    if "mindspore" not in sys.modules:
        os.environ.setdefault("GLOG_v", "3")
        if _has_new_generated_code():
            # MindSpore asks for protobuf's Python implementation; what was imported before it stays with the compiled
            # one, which reads a graph of a large network ten times faster.
            with suppress(ImportError):
                importlib.import_module("google.protobuf.descriptor")
    try:
        return importlib.import_module("mindspore")
    except ImportError as error:
        raise CompilerError(
            f"MindSpore cannot be imported ({_first_line(error)}): capture and verify need it, planning from a saved"
            " graph does not; install it with: pip install 'ms_symtensor[mindspore]'"
        ) from error


def _has_new_generated_code() -> bool:
    """Whether protobuf's compiled implementation takes the modules that protoc generated for MindSpore.

    Those of 2.9 and before build their descriptors one by one, which protobuf 4 and later allow in Python only.
    """
    found = importlib.util.find_spec("mindspore")
    if found is None or found.origin is None:
        return False
    generated = Path(found.origin).parent / "train" / "mind_ir_pb2.py"
    return generated.is_file() and "google.protobuf.internal import builder" in generated.read_text(encoding="utf-8")


@cache
def cell_graph_executor() -> Any:
    """MindSpore's compiler of cells; its module moved in 2.9."""
    import_mindspore()
    for module in ("mindspore.graph.api", "mindspore.common.api"):
        if importlib.util.find_spec(module) is not None:
            executor = getattr(importlib.import_module(module), "_cell_graph_executor", None)
            if executor is not None:
                return executor
    raise CompilerError(f"MindSpore {import_mindspore().__version__} has no _cell_graph_executor: use 2.7 to 2.10")


class Cluster:
    """A cluster as MindSpore's Python layer asks about it, seen by one rank; `groups` maps names to ranks."""

    def __init__(self, device_num: int, rank: int) -> None:
        self.device_num = device_num
        self.rank = rank
        self.groups: dict[str, tuple[int, ...]] = {WORLD_GROUP: tuple(range(device_num))}

    def get_rank_size(self, group: str = WORLD_GROUP) -> int:
        return len(self.groups[group]) if group in self.groups else self._size_in(group)

    def get_rank_id(self, group: str = WORLD_GROUP) -> int:
        return self.ranks(group).index(self.rank)

    def get_local_rank_id(self, group: str = WORLD_GROUP) -> int:
        return self.get_rank_id(group)

    def get_local_rank_size(self, group: str = WORLD_GROUP) -> int:
        return self.get_rank_size(group)

    def get_world_rank_from_group_rank(self, group: str, group_rank_id: int) -> int:
        return self.ranks(group)[group_rank_id]

    def get_group_rank_from_world_rank(self, world_rank_id: int, group: str) -> int:
        return self.ranks(group).index(world_rank_id)

    def create_group(self, group: str, rank_size: int = 0, rank_ids: list[int] | tuple[int, ...] = ()) -> None:
        self.groups[group] = tuple(sorted(rank_ids))

    def ranks(self, group: str) -> tuple[int, ...]:
        """Global ranks of `group`, ascending. MindSpore names the groups it makes by size and hash of the ranks."""
        if group not in self.groups:
            for ranks in _lattices(self.device_num, self._size_in(group), self.rank):
                self.groups.setdefault(group_name(ranks), ranks)
        if group not in self.groups:
            raise CompilerError(f"MindSpore asked for the members of group {group!r}, which nobody described")
        return self.groups[group]

    @staticmethod
    def _size_in(group: str) -> int:
        """The size that the compiler writes before the hash: 4 for `4-15700679239691767905`."""
        size, _, identity = group.partition("-")
        if not (size.isdigit() and identity.isdigit()):
            raise CompilerError(
                f"the network uses communication group {group!r}, which was not created with create_group"
            )
        return int(size)


@contextmanager
def ascend_compiler(device_num: int, rank: int = 0) -> Iterator[Cluster]:
    """While open, MindSpore compiles in graph mode for rank `rank` of `device_num` Ascend devices.

    Afterwards all is as before. CompilerError if this build of MindSpore cannot be driven that way.
    """
    if not 0 <= rank < device_num:
        raise CompilerError(f"rank {rank} is not one of {device_num} devices: give 0 <= rank < device_num")
    import_mindspore()
    from mindspore import context
    from mindspore._c_expression import MSContext

    cluster = Cluster(device_num, rank)
    simulated = not _ascend_registered and MSContext.get_instance().is_ascend_plugin_loaded()
    mode, target = context.get_context("mode"), context.get_context("device_target")
    with _simulation(device_num, rank) if simulated else _described_cluster(cluster):
        if not simulated:
            _register_ascend()
        try:
            _set_target(_ASCEND, context.GRAPH_MODE)
            yield cluster
        finally:
            _set_target(target, mode)


@contextmanager
def described_cluster(device_num: int, rank: int = 0) -> Iterator[None]:
    """While open, MindSpore's Python layer takes this process for rank `rank` of `device_num` devices.

    For networks that ask for ranks and make groups while they are built, as MindFormers' do: build and audit them inside.
    InputError unless there is such a rank.
    """
    if not 0 <= rank < device_num:
        raise InputError(f"rank {rank} is not one of {device_num} devices: give 0 <= rank < device_num")
    import_mindspore()
    with _described_cluster(Cluster(device_num, rank)):
        yield


@contextmanager
def ascend_target() -> Iterator[None]:
    """While open, MindSpore's front end takes a network as on Ascend, which allows shapes that a CPU does not.

    Where the target cannot be had it stays as it is.
    """
    import_mindspore()
    from mindspore import context
    from mindspore._c_expression import MSContext

    mode, target = context.get_context("mode"), context.get_context("device_target")
    simulated = not _ascend_registered and MSContext.get_instance().is_ascend_plugin_loaded()
    if not simulated:
        try:
            _register_ascend()
        except CompilerError:
            yield
            return
    try:
        _set_target(_ASCEND, mode)
        yield
    finally:
        _set_target(target, mode)


def _set_target(target: str, mode: int) -> None:
    from mindspore import context

    context._context().set_device_target(target)  # set_context would warn that there are newer ways for real devices
    context.set_context(mode=mode)


def group_name(ranks: tuple[int, ...]) -> str:
    """The name that MindSpore's compiler gives to the group of `ranks`: `"4-15700679239691767905"` for (4, 5, 6, 7)."""
    text = "-".join(map(str, ranks)).encode()
    return f"{len(ranks)}-{_std_hash()(text, len(text), _STD_HASH_SEED)}"


@cache
def _std_hash() -> Any:
    function = ctypes.CDLL("libstdc++.so.6")["_ZSt11_Hash_bytesPKvmm"]
    function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
    return function


def _lattices(device_num: int, size: int, rank: int) -> Iterator[tuple[int, ...]]:
    """The groups of `size` ranks with `rank` that some device matrix of `device_num` devices makes, ascending."""

    def offsets(remaining: int, size: int, stride: int) -> Iterator[tuple[tuple[int, int], ...]]:
        # from the minor axis up: an axis of the group, below it at most one axis that is not
        if size == 1:
            yield ()
            return
        for skip in range(1, remaining // size + 1):
            if remaining % (skip * size) == 0 and (skip > 1 or stride == 1):
                for extent in range(2, size + 1):
                    if size % extent == 0:
                        axis = (stride * skip, extent)
                        for rest in offsets(remaining // skip // extent, size // extent, stride * skip * extent):
                            yield axis, *rest

    for axes in offsets(device_num, size, 1):
        base = rank - sum(rank // stride % extent * stride for stride, extent in axes)
        ranks = [base]
        for stride, extent in axes:
            ranks = [r + i * stride for i in range(extent) for r in ranks]
        yield tuple(sorted(ranks))


@contextmanager
def _described_cluster(cluster: Cluster) -> Iterator[None]:
    from mindspore.communication import _comm_helper as helper

    missing = object()
    comm = helper.GlobalComm
    before = (
        [(helper, name, getattr(helper, name, missing)) for name in ("_HCCL_TEST_AVAILABLE", "hccl", "_is_initialized")]
        + [(comm, name, getattr(comm, name)) for name in ("BACKEND", "INITED", "WORLD_COMM_GROUP")]
        + [(helper._ExistingGroup, name, getattr(helper._ExistingGroup, name)) for name in ("ITEMS", "GROUP_RANKS")]
    )
    cluster.groups.update({name: tuple(sorted(ranks)) for name, ranks in helper._ExistingGroup.ITEMS.items()})
    helper._HCCL_TEST_AVAILABLE, helper.hccl = True, cluster
    helper._is_initialized = lambda: comm.INITED
    comm.BACKEND, comm.INITED, comm.WORLD_COMM_GROUP = helper.Backend("hccl"), True, WORLD_GROUP
    helper._ExistingGroup.ITEMS = dict(helper._ExistingGroup.ITEMS)
    helper._ExistingGroup.GROUP_RANKS = dict(helper._ExistingGroup.GROUP_RANKS)
    try:
        yield
    finally:
        for owner, name, value in before:
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextmanager
def _simulation(device_num: int, rank: int) -> Iterator[None]:
    """With CANN: MindSpore's own simulated cluster. It is fixed for the life of a process at its first use."""
    from mindspore import communication

    wanted = {"MS_SIMULATION_LEVEL": "0", "RANK_SIZE": str(device_num), "RANK_ID": str(rank)}
    if communication.GlobalComm.INITED:
        if any(os.environ.get(name) != value for name, value in wanted.items()):
            raise CompilerError(
                "MindSpore's cluster is already initialised in this process:"
                f" to compile for rank {rank} of {device_num} devices, start a new process"
            )
    else:
        os.environ.update(wanted)
        communication.init()
    yield


def _register_ascend() -> None:
    """Make the device target "Ascend" known to MindSpore's core library, once per process."""
    global _ascend_registered
    if _ascend_registered:
        return
    from mindspore import context
    from mindspore._c_expression import MSContext, ms_ctx_param

    library = Path(import_mindspore().__file__).parent / "lib" / "libmindspore_core.so"
    try:
        core = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise CompilerError(
            f"MindSpore's core library does not load ({_first_line(error)}): reinstall mindspore"
        ) from error
    if hasattr(core, _OLD_ABI_SYMBOL):
        register, target = core[_OLD_ABI_SYMBOL], _old_abi_string(_ASCEND)
    elif hasattr(core, _NEW_ABI_SYMBOL):
        register, target = core[_NEW_ABI_SYMBOL], _new_abi_string(_ASCEND)
    else:
        raise CompilerError(
            f"MindSpore {import_mindspore().__version__} cannot compile for Ascend on this machine ({library.name}"
            " exports no RegisterInitFunc): use 2.7 to 2.10, or a machine with CANN; planning works without"
        )
    settings = _context_settings()
    register.restype, register.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
    # The initialiser has nothing to do, but MindSpore requires one: a library function without effects serves.
    nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    register(target, nothing)
    # Registering makes a new context inside MindSpore, with default settings: hand it to Python and restore them.
    handle = MSContext.get_instance()
    context._context()._context_handle = handle
    for name, value in settings.items():
        if name != "device_target" and _context_settings().get(name) != value:
            handle.set_param(getattr(ms_ctx_param, name), value)
    _ascend_registered = True


def _context_settings() -> dict[str, Any]:
    from mindspore._c_expression import MSContext, ms_ctx_param

    settings = {}
    for name, parameter in ms_ctx_param.__members__.items():
        try:
            settings[name] = MSContext.get_instance().get_param(parameter)
        except (RuntimeError, ValueError, TypeError):
            continue  # of a type that Python cannot hold
    return settings


def _old_abi_string(text: str) -> int:
    """Address of a copy-on-write std::string: a pointer to characters that follow length, capacity, reference count."""
    data = text.encode()
    header = 3 * ctypes.sizeof(ctypes.c_size_t)
    block = ctypes.create_string_buffer(header + len(data) + 1)
    ctypes.memmove(block, (ctypes.c_size_t * 2)(len(data), len(data)), 16)
    ctypes.memmove(ctypes.addressof(block) + 16, (ctypes.c_int * 1)(-1), 4)  # -1: not to be shared, so it is copied
    ctypes.memmove(ctypes.addressof(block) + header, data, len(data))
    pointer = ctypes.c_void_p(ctypes.addressof(block) + header)
    _kept_alive.extend([block, pointer])
    return ctypes.addressof(pointer)


def _new_abi_string(text: str) -> int:
    """Address of a C++11 std::string: pointer, length, and 16 bytes that hold a short text in place."""
    data = text.encode()
    assert len(data) < 16
    block = ctypes.create_string_buffer(32)
    ctypes.memmove(block, (ctypes.c_size_t * 2)(ctypes.addressof(block) + 16, len(data)), 16)
    ctypes.memmove(ctypes.addressof(block) + 16, data, len(data))
    _kept_alive.append(block)
    return ctypes.addressof(block)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
