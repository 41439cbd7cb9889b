"""MindSpore's Ascend compiler on the machine at hand, with or without an NPU.

The CPU wheel of MindSpore contains the whole parallel front end; it lacks only the device. Here the device target
"Ascend" is made known to it, and a cluster of any size is described to it through the switch that MindSpore has for
compiling without one. Where CANN is installed, MindSpore's own simulation (MS_SIMULATION_LEVEL) is used instead.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ms_symtensor.bridge.compiler.ascend_registration import ASCEND, first_line, is_registered, register_ascend
from ms_symtensor.bridge.compiler.described_ranks import WORLD_GROUP, Cluster
from ms_symtensor.errors import CompilerError, InputError
from ms_symtensor.interrupts import interruptible
from ms_symtensor.search.constraints.checked import whole_number


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
        with interruptible(at_once=False):
            return importlib.import_module("mindspore")
    except ImportError as error:
        raise CompilerError(
            f"MindSpore cannot be imported ({first_line(error)}): capture and verify need it, planning from a saved"
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


def cell_graph_executor() -> Any:
    """MindSpore's compiler of cells; its module moved in 2.9."""
    import_mindspore()
    for module in ("mindspore.graph.api", "mindspore.common.api"):
        with suppress(ModuleNotFoundError):
            executor = getattr(importlib.import_module(module), "_cell_graph_executor", None)
            if executor is not None:
                return executor
    raise CompilerError(f"MindSpore {import_mindspore().__version__} has no _cell_graph_executor: use 2.7 to 2.10")


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
    simulated = not is_registered() and MSContext.get_instance().is_ascend_plugin_loaded()
    mode, target = context.get_context("mode"), context.get_context("device_target")
    with _simulation(device_num, rank) if simulated else _described_cluster(cluster):
        if not simulated:
            register_ascend()
        try:
            _set_target(ASCEND, context.GRAPH_MODE)
            yield cluster
        finally:
            _set_target(target, mode)


@contextmanager
def described_cluster(device_num: int, rank: int = 0) -> Iterator[None]:
    """While open, MindSpore's Python layer takes this process for one rank of a cluster.

    For networks that ask for ranks and make groups while they are built, as MindFormers' do: build and audit them inside.

    Args:
        device_num: Number of devices of the cluster.
        rank: Which of them this process is.

    Raises:
        InputError: There is no such rank.

    Example:
        >>> with ms_symtensor.described_cluster(8):
        ...     verdict = ms_symtensor.audit(build(), *inputs, device_num=8)
    """
    whole_number("device_num", device_num)
    if not isinstance(rank, int) or not 0 <= rank < device_num:
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
    simulated = not is_registered() and MSContext.get_instance().is_ascend_plugin_loaded()
    if not simulated:
        try:
            register_ascend()
        except CompilerError:
            yield
            return
    try:
        _set_target(ASCEND, mode)
        yield
    finally:
        _set_target(target, mode)


def _set_target(target: str, mode: int) -> None:
    from mindspore import context

    context._context().set_device_target(target)  # set_context would warn that there are newer ways for real devices
    context.set_context(mode=mode)


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
