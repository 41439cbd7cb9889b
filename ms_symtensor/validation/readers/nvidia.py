"""nvidia_misc.csv: throughput and memory on NVIDIA systems of InternEvo, llm-foundry, torchtitan, FlagPerf and Megatron-LM."""

from dataclasses import replace

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import (
    AttentionKernel,
    Framework,
    Precision,
    Recomputation,
)
from ms_symtensor.validation.dataset import Case, Form, UnusableRowError
from ms_symtensor.validation.readers.common import (
    LEVELS,
    RECOMPUTATION,
    Names,
    configuration,
    is_timed,
    known,
    measured,
    must_be_given,
    number_in,
)
from ms_symtensor.validation.readers.models import transformer_of
from ms_symtensor.validation.table import Row

COLUMNS = (
    "group", "model", "hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "experts", "topk", "device", "n_devices", "dp",
    "tp", "pp", "vpp", "ep", "cp", "micro_batch", "num_micro", "global_batch", "seq_len", "precision", "recompute", "zero",
    "other", "tok_s_dev", "step_ms", "peak_mem_GB", "status",
)  # fmt: skip
# Of each device, the cluster that describes it; an A100 of 40 GB differs in memory and its bandwidth, so it has none.
DEVICES = {
    "a100.*40": "a100_40g", "a100": "a100_80g", "a800": "a800_80g", "h800": "h800_80g", "h100": "h100_80g", "b200": "b200",
}  # fmt: skip
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
    timed = is_timed(row)
    if row.text("group").startswith(COMPUTED):
        raise UnusableRowError("memory that was computed, not measured")
    other = row.text("other").lower()
    if "offload=true" in other:
        raise UnusableRowError("activations move to the host")
    must_be_given(row, "dp", "tp", "pp", "micro_batch", "seq_len")
    if not row.text("num_micro") and not row.text("global_batch"):
        raise UnusableRowError("the batch is not given")
    model = transformer_of(_with_dimensions(row), row.text("model"))
    level = known(row, "zero", LEVELS, patterns=True)
    is_fsdp = level is OptimizerLevel.LEVEL3 or row.text("group").startswith(FOUNDRY)
    framework: Framework = "fsdp" if is_fsdp else "megatron"
    step = configuration(
        row,
        model,
        Names(micro_batches="" if row.text("global_batch") else "num_micro"),  # they agree where both are there
        sequence_parallel="sequence parallel" in other or (framework == "fsdp" and row.count("tp") > 1),
        optimizer_level=level,
        optimizer_weight_shard_size=number_in(row.text("zero"), r"^(?:ZeRO1|dist-opt).*over (\d+) ranks") or -1,
        recomputation=_recomputation(row, model.num_layers, row.count("pp")),
        attention=AttentionKernel.FUSED_SOFTMAX if row.text("group").startswith("KOR") else AttentionKernel.FLASH,
        precision="float8" if "fp8" in other else known(row, "precision", PRECISION),
        framework=framework,
        blocking_launches="note" in row.cells and "CUDA_LAUNCH_BLOCKING=1" in row.text("note"),
        compiled="compile" in other,
    )
    found = measured(row, step, "step_ms", "tok_s_dev", "peak_mem_GB", timed=timed)
    return Case(row.line, row.text("group"), step, found, device=known(row, "device", DEVICES, patterns=True))


def _with_dimensions(row: Row) -> Row:
    """`row` with the dimensions of the published model of that name, where it leaves them out."""
    if row.text("hidden") or row.text("model") not in SMALL_MPT:
        return row
    hidden, layers, heads = SMALL_MPT[row.text("model")]
    widths = {"hidden": hidden, "layers": layers, "heads": heads, "kv_heads": heads, "ffn": 4 * hidden}
    return replace(row, cells={**row.cells, **{column: str(number) for column, number in widths.items()}})


def _recomputation(row: Row, layers: int, stages: int) -> Recomputation:
    """torchtitan's "selective" recomputes every second block (its activation_checkpoint.selective_ac_option is 2)."""
    if row.text("recompute") == "selective" and row.text("group").startswith("TT"):
        return Recomputation(blocks=(-(-layers // stages) // 2,))
    return known(row, "recompute", RECOMPUTATION)


FORM = Form("nvidia_misc", COLUMNS, case)
