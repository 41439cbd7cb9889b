"""The units in which people compare runs: tokens per second and device, TFLOP/s per device, model FLOPs utilisation."""

from collections.abc import Mapping

from ms_symtensor.cost.flops import mfu, model_flops
from ms_symtensor.program.meanings import meanings
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


def rates(plan: Plan, graph: Graph) -> Mapping[str, float]:
    """What a step of `plan`, whose graph is `graph`, comes to, by the keys of JSON.

    Returns:
        tokens_per_s_device: tokens, or samples of networks without sequences, a second and device; tflops_device: 1e12 model
        FLOPs a second and device; mfu: the share that these are of the device's peak.
    """
    step_s, devices = plan.prediction.step_time_s, plan.device_num
    flops = plan.micro_batch_num * model_flops(graph, meanings(graph))
    tokens = plan.global_batch_size * plan.seq_length
    return {
        "tokens_per_s_device": tokens / (step_s * devices),
        "tflops_device": flops / (step_s * devices) / 1e12,
        "mfu": mfu(flops, step_s, devices, plan.planned_for.device.cube_peak_FLOPs),
    }


def rate_unit(plan: Plan) -> str:
    """Of what the rates of `plan` are: tokens, or samples where these have no tokens."""
    return "samples/s" if plan.seq_length == 1 else "tokens/s"


def rates_text(plan: Plan, found: Mapping[str, float]) -> str:
    """The rates of `plan` on one line."""
    return (
        f"  {found['tokens_per_s_device']:,.0f} {rate_unit(plan)}, {found['tflops_device']:.1f} TFLOP/s a device,"
        f" MFU {100 * found['mfu']:.1f} %"
    )
