"""Driving MindSpore's Ascend compiler on this machine."""

import os
import subprocess
import sys

import pytest

from ms_symtensor.bridge.compiler.host import ascend_compiler, described_cluster, import_mindspore
from ms_symtensor.errors import CompilerError, InputError


def test_rank_outside_the_cluster_is_an_error():
    with pytest.raises(CompilerError, match="rank 8 is not one of 8 devices"), ascend_compiler(8, 8):
        pass


@pytest.mark.parametrize("given", [("8",), (8, "0"), (0,), (8, 8)])
def test_a_cluster_that_is_none_cannot_be_described(given):
    with pytest.raises(InputError, match="device_num"), described_cluster(*given):
        pass


def test_state_comes_back():
    mindspore = import_mindspore()
    from mindspore import context
    from mindspore.communication import _comm_helper

    context.set_context(mode=context.PYNATIVE_MODE, max_call_depth=777)
    try:
        with ascend_compiler(8, 3):
            assert context.get_context("device_target") == "Ascend"
            assert context.get_context("mode") == context.GRAPH_MODE
            assert mindspore.communication.get_group_size() == 8
            assert mindspore.communication.get_rank() == 3
        assert context.get_context("device_target") == "CPU"
        assert context.get_context("mode") == context.PYNATIVE_MODE
        assert context.get_context("max_call_depth") == 777
        assert not _comm_helper._HCCL_TEST_AVAILABLE
        assert not _comm_helper.GlobalComm.INITED
        assert float((mindspore.Tensor([1.0]) + 1)[0]) == 2.0
    finally:
        context.set_context(max_call_depth=1000)


def test_the_compiled_protobuf_is_used_where_mindspore_takes_it():
    """MindSpore of another version is imported too (2.9 and before cannot take the compiled implementation)."""
    program = (
        "from ms_symtensor.bridge.compiler.host import import_mindspore\n"
        "print(import_mindspore().__version__)\n"
        "from google.protobuf.internal import api_implementation, builder\n"
        "from mindspore.train import mind_ir_pb2\n"
        "print(api_implementation.Type(), hasattr(mind_ir_pb2, '_builder'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    environment.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)  # MindSpore sets it in this process
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    kind, is_new = result.stdout.splitlines()[-1].split()
    assert (kind != "python") == (is_new == "True")


def test_missing_mindspore_is_one_clear_line():
    program = (
        "import sys; sys.modules['mindspore'] = None\n"
        "from ms_symtensor.bridge.compiler.host import import_mindspore\n"
        "try: import_mindspore()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert result.stdout.startswith("CompilerError MindSpore cannot be imported")
    assert result.stdout.count("\n") == 1


def test_a_network_asks_for_ranks_while_it_is_built():
    mindspore = import_mindspore()
    with described_cluster(8, 3):
        assert (mindspore.communication.get_rank(), mindspore.communication.get_group_size()) == (3, 8)
        mindspore.communication.create_group("pair", [2, 3])
        assert mindspore.communication.get_group_size("pair") == 2
        with ascend_compiler(8, 3) as cluster:
            assert cluster.ranks("pair") == (2, 3)
    with pytest.raises(InputError, match="rank 8 is not one of 8 devices"), described_cluster(8, 8):
        pass
