"""One micro-batch of one rank, forward and backward, on the `meta` device: shapes are inferred, nothing is computed."""

from typing import Any

import mindspore
from mindspore import mint

from ms_symtensor.bridge.pynative.kept import Kept
from ms_symtensor.bridge.pynative.model import Stage
from ms_symtensor.bridge.pynative.session import CURRENT


def trace(stage: Stage) -> list[Kept]:
    """Run the stage's model chunks one after the other; calls go to the session, what each keeps is returned."""
    return [_traced(part, stage.trainer.config) for part in stage.parts]


def _traced(part: Any, config: Any) -> Kept:
    kept = Kept()
    with mindspore.DeviceCtx("meta"):
        inputs = _inputs(config)
        CURRENT.phase = "forward"

        def objective(hidden: Any = None) -> Any:
            with kept.hooks():
                output = part(**inputs, decoder_input=hidden)
            CURRENT.phase = "backward"
            return (output[0] if isinstance(output, (tuple, list)) else output).sum()

        weights = part.trainable_params()
        if getattr(part.model, "pre_process", True):
            mindspore.value_and_grad(objective, None, weights)()
        else:
            mindspore.value_and_grad(objective, 0, weights)(_hidden(config))
    kept.add_received(CURRENT.kept)
    CURRENT.kept.clear()
    return kept


def _inputs(config: Any) -> dict[str, Any]:
    """What the trainer's data set gives."""
    shape = (config.training.local_batch_size, config.model.seq_length)
    dtypes = {
        "input_ids": mindspore.int32,
        "position_ids": mindspore.int32,
        "labels": mindspore.int32,
        "loss_mask": mindspore.float32,
    }
    return {name: mint.empty(shape, dtype=dtype) for name, dtype in dtypes.items()}


def _hidden(config: Any) -> Any:
    """What a stage receives from the one before: this rank's part of the sequence, all streams of hyper-connections packed."""
    degrees, model = config.parallelism, config.model
    streams = 1
    if getattr(model, "enable_hyper_connections", False):
        streams = getattr(model, "num_residual_streams", None) or model.hc_mult
    length = model.seq_length // degrees.context_parallel // degrees.tensor_parallel
    dtype = getattr(mindspore, getattr(model, "compute_dtype", None) or "bfloat16")
    return mint.empty((length, config.training.local_batch_size, streams * model.hidden_size), dtype=dtype)
