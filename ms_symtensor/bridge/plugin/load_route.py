"""MindSpore's own way of loading strategies: an `AutoParallel` cell that reads an operator-strategy file."""

import os
from typing import Any

from ms_symtensor.bridge.compiler.compile import CompiledProgram, compile_rank
from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.compiler.parallel_context import stand_alone_context
from ms_symtensor.bridge.plugin.auto_parallel import set_on_auto_parallel
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.primitives import context_settings


def compile_loaded(cell: Any, *inputs: Any, file: str | os.PathLike[str], plan: Plan, rank: int = 0) -> CompiledProgram:
    """The program of `rank` when MindSpore takes the strategies of `cell(*inputs)` from the operator-strategy `file`.

    `cell` carries no strategies of its own; the settings are those of `plan`, and its pipeline stages stand on the cells
    (`set_stages`). Otherwise as `compile_rank`. MindSpore
    keeps what it has loaded for the life of the process, and uses it for operators of the same name that a later file
    leaves out: to judge a file that may be incomplete, start a new process.
    """
    settings = context_settings(plan.settings, plan.pipeline)
    with ascend_compiler(plan.device_num, rank), stand_alone_context():
        from mindspore.parallel.auto_parallel import AutoParallel

        wrapper = AutoParallel(cell, parallel_mode="sharding_propagation")
        wrapper.dataset_strategy(settings["dataset_strategy"])
        set_on_auto_parallel(wrapper, settings)
        if plan.pipeline_stages > 1:
            wrapper.pipeline(stages=plan.pipeline_stages)
        wrapper.load_operator_strategy_file(os.path.abspath(file))
        wrapper.set_train()
        return compile_rank(wrapper, *inputs, device_num=plan.device_num, rank=rank)
