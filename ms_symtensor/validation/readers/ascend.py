"""ascend_measured.csv: throughput on Ascend of Megatron-like (MindSpeed) and MindFormers configurations."""

import re

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import Configuration
from ms_symtensor.validation.dataset import Case, Form, UnusableRowError
from ms_symtensor.validation.readers import megatron, mindformers
from ms_symtensor.validation.readers.common import LEVELS, configuration, is_timed, known, measured, must_be_given
from ms_symtensor.validation.readers.devices import cluster_of
from ms_symtensor.validation.readers.models import transformer_of
from ms_symtensor.validation.readers.slide import slide_configuration
from ms_symtensor.validation.table import Row, Table

COLUMNS = (
    "group", "model", "framework", "phase", "device", "n_devices", "dp", "tp", "pp", "vpp", "ep", "cp", "sp", "micro_batch",
    "global_batch", "seq_len", "recompute", "zero", "other", "hidden", "layers", "heads", "kv_heads", "ffn", "vocab",
    "experts", "topk", "tok_s_dev", "step_s", "mfu_pct", "peak_mem_MB", "status", "date",
    "config_check",
)  # fmt: skip
NEEDED = ("n_devices", "dp", "tp", "pp", "micro_batch", "global_batch", "seq_len")
DOUBTED = ("mismatch", "implausible", "ambiguous")
EXACT_DIGITS = 8
"""No two steps agree in so many digits of a throughput, of which some thousandths vary from run to run."""


def doubts(table: Table) -> dict[int, str]:
    """Rows, by line, whose throughput stands beside another configuration too, to the last digit: one of them was copied."""
    of: dict[str, list[Row]] = {}
    for row in table.rows:
        if len(row.text("tok_s_dev").replace(".", "").strip("0")) >= EXACT_DIGITS:
            of.setdefault(row.text("tok_s_dev"), []).append(row)
    return {
        row.line: "the same throughput stands beside another configuration"
        for rows in of.values()
        if len(
            {tuple(row.text(column) for column in ("n_devices", "seq_len", "micro_batch", "hidden")) for row in rows}
        )
        > 1
        for row in rows
    }


def case(row: Row) -> Case:
    """A timed configuration, one out of memory, or one of the slide whose depth is an assumption (slide.py)."""
    check = row.text("config_check")
    if check.split("(")[0].strip() in DOUBTED:
        raise UnusableRowError(f"config_check is {check}")
    if re.search(r"in card .*, yaml", row.cells.get("note", "")):
        raise UnusableRowError("the text and the file of the source differ")
    timed = is_timed(row)
    if row.text("phase") == "lora":
        raise UnusableRowError("LoRA: most weights are frozen")
    if check == "slide":
        step = slide_configuration(row.count("dp"), row.count("tp"))
    elif "MindFormers" in row.text("framework"):
        step = _mindformers(row)
    elif "Megatron" in row.text("framework") or "MindSpeed" in row.text("framework"):
        step = _megatron(row)
    else:
        raise UnusableRowError(f"no reader for framework {row.text('framework')!r}")
    found = measured(row, step, "tok_s_dev", "step_s", "peak_mem_MB", "mfu_pct", timed=timed)
    software = "MindFormers" if step.framework == "mindspore" else "MindSpeed"
    part = check if check == "slide" else f"{software} {'experts' if step.model.experts else 'dense'}"
    return Case(row.line, row.text("group"), step, found, part, cluster_of(row.text("device")))


def _megatron(row: Row) -> Configuration:
    options = megatron.options_of(megatron.recomputing(row.text("recompute")), row.text("other"))
    megatron.must_be_usable(options, packed="pack" in row.text("model"))
    must_be_given(row, *NEEDED)
    if row.text("zero") == "ZeRO-3":
        raise UnusableRowError("ZeRO-3 under DeepSpeed")
    model = transformer_of(row, row.text("model"), imbalance=megatron.imbalance(options))
    sequence, level = row.flag("sp") and row.count("tp") > 1, known(row, "zero", LEVELS, patterns=True)
    return megatron.configuration(row, options, model, sequence_parallel=sequence, optimizer_level=level)


def _mindformers(row: Row) -> Configuration:
    recompute = {"full": "recompute=True", "none": ""}.get(row.text("recompute"), row.text("recompute"))
    if recompute and "=" not in recompute:
        raise UnusableRowError("recomputation in words")
    settings = mindformers.settings_of(recompute, row.text("other"))
    must_be_given(row, *NEEDED)
    model = transformer_of(row, row.text("model"), imbalance=mindformers.capacity(settings))
    stages, interleave = row.count("pp"), row.optional_count("vpp") or 1
    return configuration(
        row,
        model,
        copies=mindformers.copies(settings),
        sequence_parallel=row.flag("sp") and row.count("tp") > 1,
        # DeepSeek-V3's are whole (`mp` of the weights' (ep, 1, mp))
        expert_model_parallel=1 if model.latent_attention else 0,
        layers_on_stage=mindformers.layers_on_stage(settings, model.num_layers, stages, interleave),
        optimizer_level=OptimizerLevel(row.text("zero") not in ("", "none", "none(dp=1)")),
        recomputation=mindformers.recomputation(settings, stages),
        attention=mindformers.attention(settings),
        precision=mindformers.precision(settings),
        stored=mindformers.stored(settings, row.text("model")),
        memory_limit_B=mindformers.memory_limit_B(settings),
        framework="mindspore",
        overlap_gradients=False,  # as plans are priced, too
        overlap_weights=False,
        whole_embedding=mindformers.whole_embedding(settings),
    )


FORM = Form("ascend_measured", COLUMNS, case, doubts)
