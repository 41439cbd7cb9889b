"""layouts_a100.csv: LLaMA layouts on A100, timed or out of memory (arXiv 2311.05610)."""

from ms_symtensor.cost.runtime import Stored
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import (
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    AttentionKernel,
    Configuration,
    Transformer,
)
from ms_symtensor.validation.dataset import Case, Measurement, UnusableRowError
from ms_symtensor.validation.readers.common import devices_must_agree, micro_batches
from ms_symtensor.validation.table import Row

NAME = "layouts_a100"
COLUMNS = (
    "model", "hidden", "layers", "heads", "ffn", "n_devices", "dp", "tp", "pp", "micro_batch", "global_batch", "seq_len",
    "sequence_parallel", "recompute", "kernel", "zero", "status", "step_s",
)  # fmt: skip
VOCABULARY = 128000  # untied: with it the column mfu of every timed row agrees with 6 N + 12 L h s FLOPs per token
KERNELS = {
    "torch": AttentionKernel.PLAIN,
    "fused": AttentionKernel.FUSED_SOFTMAX,
    "flash_attentionv1.0.8": AttentionKernel.FLASH1,
    "flash_attention2": AttentionKernel.FLASH,
}
RMS_KERNEL = " + RMS kernel"
RECOMPUTATION = {"disabled": NO_RECOMPUTATION, "every_layer": FULL_RECOMPUTATION}
ZERO = {"ZeRO-1": OptimizerLevel.LEVEL1, "": OptimizerLevel.NONE, "none": OptimizerLevel.NONE}


def case(row: Row) -> Case:
    """LLaMA in bfloat16 under Aleph Alpha's trainer; "Kernel not available" and the like are neither fit nor out of memory."""
    status = row.text("status")
    if status != "ok" and "OOM" not in status:
        raise UnusableRowError(f"status {status!r}: neither timed nor out of memory")
    kernel = row.text("kernel")
    devices_must_agree(row)
    for column, known in (("recompute", RECOMPUTATION), ("zero", ZERO)):
        if row.text(column) not in known:
            raise UnusableRowError(f"unknown {column} {row.text(column)!r}")
    if kernel.removesuffix(RMS_KERNEL) not in KERNELS:
        raise UnusableRowError(f"unknown kernel {kernel!r}")
    configuration = Configuration(
        Transformer(
            hidden_size=row.count("hidden"),
            num_layers=row.count("layers"),
            num_heads=row.count("heads"),
            n_kv_heads=row.count("heads"),
            intermediate_size=row.count("ffn"),
            vocab_size=VOCABULARY,
        ),
        row.count("seq_len"),
        data_parallel=row.count("dp"),
        model_parallel=row.count("tp"),
        sequence_parallel=row.flag("sequence_parallel") and row.count("tp") > 1,
        pipeline_stages=row.count("pp"),
        micro_batch_size=row.count("micro_batch"),
        micro_batch_num=micro_batches(row, row.count("dp") * row.count("micro_batch")),
        optimizer_level=ZERO[row.text("zero")],
        recomputation=RECOMPUTATION[row.text("recompute")],
        attention=KERNELS[kernel.removesuffix(RMS_KERNEL)],
        fused_norm=kernel.endswith(RMS_KERNEL),
        bytes_per_parameter=Stored(gradient=2),  # whole models of 13e9 parameters fit one device with ZeRO-1
        loss="torch",
        fused_layers=False,  # of its kernels only attention and norm are its own
        gathered_logits=True,  # Aleph Alpha's trainer: all_concat before the loss
        overlap_gradients=False,
        overlap_weights=False,
    )
    workload = ("model", "n_devices", "seq_len", "global_batch")
    step_time_s = row.positive("step_s") if status == "ok" else None
    return Case(
        row.line,
        "|".join(row.text(column) for column in workload),
        configuration,
        Measurement(step_time_s=step_time_s, fits=status == "ok"),
    )
