"""nvidia_misc.csv: throughput and memory on NVIDIA systems of InternEvo, llm-foundry, torchtitan, FlagPerf and Megatron-LM."""

import re
from dataclasses import replace

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import (
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    SELECTIVE_RECOMPUTATION,
    AttentionKernel,
    Configuration,
    Framework,
    Precision,
    Recomputation,
)
from ms_symtensor.validation.dataset import Case, Measurement, UnusableRowError
from ms_symtensor.validation.readers.common import devices_must_agree, micro_batches, must_be_given, ranks_of_an_expert
from ms_symtensor.validation.readers.models import transformer_of
from ms_symtensor.validation.table import Row

NAME = "nvidia_misc"
COLUMNS = (
    "group", "model", "hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "experts", "topk", "device", "n_devices", "dp",
    "tp", "pp", "vpp", "ep", "cp", "micro_batch", "num_micro", "global_batch", "seq_len", "precision", "recompute", "zero",
    "other", "tok_s_dev", "step_ms", "peak_mem_GB", "status",
)  # fmt: skip
GIB = 1 << 30
# Of each device, the cluster that describes it; an A100 of 40 GB differs in memory and its bandwidth, so it has none.
DEVICES = (
    (r"a100.*40", "a100_40g"),
    (r"a100", "a100_80g"),
    (r"a800", "a800_80g"),
    (r"h800", "h800_80g"),
    (r"h100", "h100_80g"),
    (r"b200", "b200"),
)
PRECISION: dict[str, Precision] = {
    "": "bfloat16", "bf16": "bfloat16", "amp_bf16": "bfloat16", "fp16": "float16", "amp_fp8": "float8", "fp8": "float8",
}  # fmt: skip
# hidden, layers, heads: github.com/mosaicml/llm-foundry, scripts/train/yamls/pretrain, mpt-125m.yaml and the others
SMALL_MPT = {"MPT-125m": (768, 12, 12), "MPT-350m": (1024, 24, 16), "MPT-760m": (1536, 24, 12)}
# The device's memory is not what ran out in these sources: their totals are sums of formulas.
COMPUTED = "KOR-mem"
FOUNDRY = "LF|"
"""llm-foundry: PyTorch's FSDP at every level; ZeRO2 is its SHARD_GRAD_OP (scripts/train/benchmarking/README.md)."""


def case(row: Row) -> Case:
    """One row of one of the sources, which column group begins with."""
    if row.text("status") not in ("ok", "OOM"):
        raise UnusableRowError(f"status {row.text('status')!r}: neither timed nor out of memory")
    if row.text("group").startswith(COMPUTED):
        raise UnusableRowError("memory that was computed, not measured")
    other = row.text("other").lower()
    if "offload=true" in other:
        raise UnusableRowError("activations move to the host")
    _must_be_complete(row)
    model, stages = transformer_of(_with_dimensions(row), row.text("model")), row.count("pp")
    level, shard_size = _sharding(row)
    is_fsdp = level is OptimizerLevel.LEVEL3 or row.text("group").startswith(FOUNDRY)
    framework: Framework = "fsdp" if is_fsdp else "megatron"
    precision = PRECISION.get(row.text("precision"))
    if precision is None:
        raise UnusableRowError(f"unknown precision {row.text('precision')!r}")
    configuration = Configuration(
        model,
        row.count("seq_len"),
        data_parallel=row.count("dp"),
        model_parallel=row.count("tp"),
        sequence_parallel="sequence parallel" in other or (framework == "fsdp" and row.count("tp") > 1),
        context_parallel=row.optional_count("cp") or 1,
        expert_parallel=row.optional_count("ep") or 1,
        expert_model_parallel=ranks_of_an_expert(row),
        pipeline_stages=stages,
        interleave=row.optional_count("vpp") or 1,
        micro_batch_size=row.count("micro_batch"),
        micro_batch_num=_micro_batch_num(row),
        optimizer_level=level,
        optimizer_weight_shard_size=shard_size,
        recomputation=_recomputation(row, model.num_layers, stages),
        attention=AttentionKernel.FUSED_SOFTMAX if row.text("group").startswith("KOR") else AttentionKernel.FLASH,
        precision="float8" if "fp8" in other else precision,
        framework=framework,
        blocking_launches="note" in row.cells and "CUDA_LAUNCH_BLOCKING=1" in row.text("note"),
        compiled="compile" in other,
    )
    timed = row.text("status") == "ok"
    memory_GiB = row.optional_number("peak_mem_GB")
    measured = Measurement(
        step_time_s=_step_time_s(row, configuration) if timed else None,
        peak_memory_B=memory_GiB * GIB if memory_GiB else None,
        fits=timed,
    )
    if timed and measured.step_time_s is None and measured.peak_memory_B is None:
        raise UnusableRowError("neither step time nor memory was measured")
    return Case(row.line, row.text("group"), configuration, measured, device=_device(row))


def _with_dimensions(row: Row) -> Row:
    """`row` with the dimensions of the published model of that name, where it leaves them out."""
    if row.text("hidden") or row.text("model") not in SMALL_MPT:
        return row
    hidden, layers, heads = SMALL_MPT[row.text("model")]
    known = {"hidden": hidden, "layers": layers, "heads": heads, "kv_heads": heads, "ffn": 4 * hidden}
    return replace(row, cells={**row.cells, **{column: str(number) for column, number in known.items()}})


def _must_be_complete(row: Row) -> None:
    must_be_given(row, "dp", "tp", "pp", "micro_batch", "seq_len")
    if not row.text("num_micro") and not row.text("global_batch"):
        raise UnusableRowError("the batch is not given")
    devices_must_agree(row, "cp")


def _micro_batch_num(row: Row) -> int:
    """From the global batch; InternEvo's and llm-foundry's num_micro agrees with it."""
    if row.text("global_batch"):
        return micro_batches(row, row.count("dp") * row.count("micro_batch"))
    return row.count("num_micro")


def _sharding(row: Row) -> tuple[OptimizerLevel, int]:
    """Optimizer level and how many ranks share (-1: all)."""
    zero = row.text("zero")
    ranks = re.search(r"over (\d+) ranks", zero)
    if zero.startswith(("ZeRO3", "FSDP")):
        return OptimizerLevel.LEVEL3, -1
    if zero == "ZeRO2":
        return OptimizerLevel.LEVEL2, -1
    if zero.startswith(("ZeRO1", "dist-opt")):
        return OptimizerLevel.LEVEL1, int(ranks[1]) if ranks else -1
    if zero in ("", "none"):
        return OptimizerLevel.NONE, -1
    raise UnusableRowError(f"unknown zero {zero!r}")


def _recomputation(row: Row, layers: int, stages: int) -> Recomputation:
    """torchtitan's "selective" recomputes every second block (its activation_checkpoint.selective_ac_option is 2)."""
    kind = row.text("recompute")
    if kind == "selective" and row.text("group").startswith("TT"):
        return Recomputation(blocks=(-(-layers // stages) // 2,))
    known = {
        "": NO_RECOMPUTATION,
        "none": NO_RECOMPUTATION,
        "full": FULL_RECOMPUTATION,
        "selective": SELECTIVE_RECOMPUTATION,
    }
    if kind not in known:
        raise UnusableRowError(f"unknown recompute {kind!r}")
    return known[kind]


def _step_time_s(row: Row, configuration: Configuration) -> float | None:
    if row.text("step_ms"):
        return row.positive("step_ms") / 1e3
    if row.text("tok_s_dev"):
        return configuration.tokens / (row.positive("tok_s_dev") * configuration.device_num)
    return None


def _device(row: Row) -> str:
    name = row.text("device").lower()
    found = next((cluster for pattern, cluster in DEVICES if re.search(pattern, name)), None)
    if found is None:
        raise UnusableRowError(f"unknown device {row.text('device')!r}")
    return found
