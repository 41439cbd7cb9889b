"""Train the network of a plan on random tokens: one worker of `msrun`, started by launch/msrun.sh.

    python launch/train.py PLAN_DIR [--steps 10] [--device-target Ascend]

It shows how a plan is used: build the network, apply the plan, set the parallel context, train. Replace `batches` by a data set.
With a plan for one device it runs without msrun. With pipeline stages, the ranks of the last stage tell the loss.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.nn.utils import no_init_parameters

import ms_symtensor
from model_zoo.network import optimizer
from ms_symtensor.bridge.apply.load_network import load_planned
from ms_symtensor.bridge.apply.pipeline_network import whole_batch, wrapped
from ms_symtensor.errors import InputError, SymTensorError
from ms_symtensor.strategy.plan import Plan


def batches(inputs: tuple[Any, ...], vocabulary: int, steps: int) -> Iterator[list[ms.Tensor]]:
    """Random batches like `inputs`: whole numbers below `vocabulary`, ones for weights. The same on every rank."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        yield [_like(x, random, vocabulary) for x in inputs]


def _like(x: Any, random: np.random.Generator, vocabulary: int) -> ms.Tensor:
    if "Int" in str(x.dtype):
        return ms.Tensor(random.integers(0, vocabulary, x.shape), ms.int32)
    return ms.ops.ones(x.shape, x.dtype)


def training_step(network: nn.Cell, plan: Plan) -> nn.Cell:
    """One step of the optimizer on `network`, to which `plan` is applied: in micro-batches where it has several.

    InputError for a plan with optimizer offload.
    """
    if plan.settings.swap_optimizer:
        raise InputError(
            "the plan keeps optimizer states in host memory, which this script's optimizer does not: put one that does into"
            " training_step (shard.py says what to set)"
        )
    update = optimizer(network.trainable_params())
    if plan.pipeline is None:
        return nn.TrainOneStepCell(network, update)
    # MindSpore's own step with micro-batches (Model.train uses it too); it has no public name
    from mindspore.nn.wrap.cell_wrapper import _TrainGradAccuStepCell

    return _TrainGradAccuStepCell(wrapped(network, plan.pipeline), update)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", help="directory that `symtensor plan` wrote")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--vocabulary", type=int, default=1000, help="largest token + 1")
    parser.add_argument("--device-target", default="Ascend")
    parser.add_argument("--edited", action="store_true", help="go on with a directory whose files were changed")
    parser.add_argument("--trust", action="store_true", help="run the factory that a plan of somebody else names")
    chosen = parser.parse_args()
    plan = ms_symtensor.load_plan(chosen.plan, chosen.edited, chosen.trust)
    ms.set_context(mode=ms.GRAPH_MODE, device_target=chosen.device_target)
    if plan.device_num > 1 or "MS_ROLE" in os.environ:  # msrun's scheduler runs this too, and stays in init()
        init()
        if get_group_size() != plan.device_num:
            raise InputError(
                f"the plan is for {plan.device_num} devices, {get_group_size()} are running: start as many (LOCAL_WORKERS of"
                " launch/msrun.sh, on several machines WORKERS too)"
            )
    with no_init_parameters():  # by the compile, slice by slice: else every rank begins with other random weights
        network, inputs = load_planned(plan)
    if plan.pipeline is not None:
        inputs = whole_batch(inputs, plan.micro_batch_num)
    plan.apply(network, *inputs)
    if plan.device_num > 1:
        settings = ms_symtensor.context_settings(plan.settings, plan.pipeline)
        ms.set_auto_parallel_context(device_num=plan.device_num, **settings)
    tells_loss = plan.pipeline_stages == 1 or get_rank() >= plan.device_num - plan.stages[-1].settings.device_num
    step = training_step(network, plan)
    step.set_train()
    for number, batch in enumerate(batches(inputs, chosen.vocabulary, chosen.steps)):
        start = time.perf_counter()
        loss = step(*batch).asnumpy()
        told = f"loss {float(loss):.4f}, " if tells_loss else ""
        print(f"step {number}: {told}{time.perf_counter() - start:.3f} s", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SymTensorError as error:
        print(f"train: error: {error}", file=sys.stderr)
        sys.exit(2)
