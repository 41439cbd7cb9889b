"""MindSpore's parallel settings, set for a while."""

import pytest
from mindspore import context

from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig, parallel_context, stand_alone_context
from ms_symtensor.errors import CompilerError


@pytest.fixture
def user_settings():
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, enable_alltoall=True)
    yield
    context.reset_auto_parallel_context()


def test_settings_leave_out_what_is_not_set():
    settings = ParallelConfig(enable_parallel_optimizer=True, optimizer_level="level2").settings()
    assert settings["parallel_optimizer_config"] == {"optimizer_level": "level2"}
    assert "search_mode" not in settings
    assert "pipeline_stages" not in settings


def test_in_force_inside_and_gone_outside(user_settings):
    config = ParallelConfig(enable_parallel_optimizer=True, optimizer_weight_shard_size=4, optimizer_level="level3")
    with ascend_compiler(8, 5), parallel_context(8, 5, config):
        assert context.get_auto_parallel_context("device_num") == 8
        assert context.get_auto_parallel_context("global_rank") == 5
        assert context.get_auto_parallel_context("enable_parallel_optimizer")
        assert not context.get_auto_parallel_context("enable_alltoall")
    assert not context.get_auto_parallel_context("enable_parallel_optimizer")
    assert context.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"
    assert context.get_auto_parallel_context("full_batch")
    assert context.get_auto_parallel_context("enable_alltoall")


def test_come_back_after_an_error(user_settings):
    with pytest.raises(ZeroDivisionError), stand_alone_context():
        assert context.get_auto_parallel_context("parallel_mode") == "stand_alone"
        raise ZeroDivisionError
    assert context.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"


def test_what_mindspore_refuses_is_named():
    with (
        pytest.raises(CompilerError, match=r"refuses the parallel settings.*optimizer_level"),
        ascend_compiler(8),
        parallel_context(8, 0, ParallelConfig(enable_parallel_optimizer=True, optimizer_level="level9")),
    ):
        pass
