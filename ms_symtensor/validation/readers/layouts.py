"""layouts_a100.csv: LLaMA layouts on A100, timed or out of memory (arXiv 2311.05610)."""

from ms_symtensor.cost.runtime import Stored
from ms_symtensor.validation.configuration import (
    AttentionKernel,
)
from ms_symtensor.validation.dataset import Case, Form
from ms_symtensor.validation.readers.common import LEVELS, RECOMPUTATION, configuration, is_timed, known, measured
from ms_symtensor.validation.readers.families import model_like
from ms_symtensor.validation.table import Row

COLUMNS = (
    "model", "hidden", "layers", "heads", "ffn", "n_devices", "dp", "tp", "pp", "micro_batch", "global_batch", "seq_len",
    "sequence_parallel", "recompute", "kernel", "zero", "status", "step_s",
)  # fmt: skip
VOCABULARY = 128000  # untied: with it the column mfu of every timed row agrees with 6 N + 12 L h s FLOPs per token
KERNELS = {
    f"{name}{suffix}": (kernel, bool(suffix))
    for name, kernel in (
        ("torch", AttentionKernel.PLAIN),
        ("fused", AttentionKernel.FUSED_SOFTMAX),
        ("flash_attentionv1.0.8", AttentionKernel.FLASH1),
        ("flash_attention2", AttentionKernel.FLASH),
    )
    for suffix in ("", " + RMS kernel")
}
"""Attention, and whether norms are fused."""


def case(row: Row) -> Case:
    """LLaMA in bfloat16 under Aleph Alpha's trainer; "Kernel not available" and the like are neither fit nor out of memory."""
    timed, (attention, fused_norm) = is_timed(row), known(row, "kernel", KERNELS)
    hidden, layers, heads, ffn = (row.count(column) for column in ("hidden", "layers", "heads", "ffn"))
    step = configuration(
        row,
        model_like("llama", hidden, layers, heads, heads, ffn, VOCABULARY),
        sequence_parallel=row.flag("sequence_parallel") and row.count("tp") > 1,
        optimizer_level=known(row, "zero", LEVELS, patterns=True),
        recomputation=known(row, "recompute", RECOMPUTATION),
        attention=attention,
        fused_norm=fused_norm,
        bytes_per_parameter=Stored(gradient=2),  # whole models of 13e9 parameters fit one device with ZeRO-1
        loss="torch",
        fused_layers=False,  # of its kernels only attention and norm are its own
        gathered_logits=True,  # Aleph Alpha's trainer: all_concat before the loss
        overlap_gradients=False,
        overlap_weights=False,
    )
    workload = ("model", "n_devices", "seq_len", "global_batch")
    group = "|".join(row.text(column) for column in workload)
    return Case(row.line, group, step, measured(row, step, "step_s", timed=timed))


FORM = Form("layouts_a100", COLUMNS, case)
