"""Overlap that MindSpore can be told: settings of its `parallel_speed_up.json`, and what each hides.

Of t seconds of communication under a window of w seconds of computation a step sees max(0, t - w) (`cost.stage_time`). What runs
on the device then is up to its streams: a compiled graph shows at most the order that a setting asks for.
Source of names and meanings: mindspore/python/mindspore/context.py (`_set_speedup_config_path`) of 2.10.0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ms_symtensor.cost.bill import Part
from ms_symtensor.errors import InputError

PREFIX = "overlap."
SLOWDOWN = 0.3
"""empirical, as of `--hide` (range 0.0 to 0.5): a hidden collective takes cores and bandwidth from the computation above it."""


@dataclass(frozen=True)
class Overlap:
    """One setting.

    Attributes:
        text: what runs beside what.
        parts: the communication that it hides.
        passes: in which passes; "recompute": of the backward pass what is recomputed.
        window: the share of its pass's computation that the communication runs beside.
        parameter: its name in MindSpore's context (`ms_ctx_param`).
        in_order: the control edges that it leaves are predicted and verified.
    """

    text: str
    parts: tuple[Part, ...]
    passes: tuple[str, ...]
    window: float
    parameter: str
    in_order: bool = False


OVERLAPS: Mapping[str, Overlap] = {
    # frontend/parallel/pass/overlap_gradmatmul_and_gradallreduce.cc: of a product's two gradients that of the weight runs beside
    # a collective; so half of the backward pass's products are a window.
    "grad_matmul_communication_overlap": Overlap(
        "collectives of the backward pass beside the products of weights' gradients",
        (Part.TENSOR, Part.EXPERT), ("backward",), 0.5, "matmul_grad_comm_overlap",
    ),
    # frontend/parallel/pass/overlap_param_gather.cc: gathers one after the other, in the order of use, beside the forward pass
    "computation_allgather_overlap": Overlap(
        "gathers of weights that the optimizer shards beside the forward pass",
        (Part.WEIGHTS,), ("forward",), 1.0, "enable_opt_shard_comm_opt", in_order=True,
    ),
    # context.py: "calculates and aggregates gradients in parallel"; a sum begins when its gradient is there
    "grad_computation_allreduce_overlap": Overlap(
        "sums of weights' gradients beside the backward pass",
        (Part.GRADIENTS,), ("backward",), 1.0, "enable_grad_comm_opt",
    ),
    # context.py: recomputed communication beside the computation of the block before; a third of a backward pass with
    # recomputation is the recomputed forward pass, so the rest, two thirds, is a window
    "recomputation_communication_overlap": Overlap(
        "recomputed collectives beside the backward pass of the block before",
        (Part.TENSOR, Part.EXPERT), ("recompute",), 0.67, "recompute_comm_overlap",
    ),
}  # fmt: skip


def named(text: str) -> tuple[str, ...]:
    """The settings among the words of `--hide`."""
    words = (word.strip() for word in text.split(","))
    return tuple(sorted({word.removeprefix(PREFIX) for word in words if word.startswith(PREFIX)}))


def require_known(names: Iterable[str]) -> None:
    """InputError for a name that is no setting."""
    for name in names:
        if name not in OVERLAPS:
            raise InputError(f"{PREFIX}{name} is not modelled: known are {', '.join(OVERLAPS)}")
