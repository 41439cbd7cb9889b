"""ascend_measured.csv: throughput on Ascend of Megatron-like (MindSpeed) and MindFormers configurations."""

import re
from dataclasses import replace

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import Configuration
from ms_symtensor.validation.dataset import Case, Measurement, UnusableRowError
from ms_symtensor.validation.readers import megatron, mindformers
from ms_symtensor.validation.readers.common import devices_must_agree, micro_batches, must_be_given
from ms_symtensor.validation.readers.devices import cluster_of
from ms_symtensor.validation.readers.models import transformer_of
from ms_symtensor.validation.readers.slide import slide_configuration
from ms_symtensor.validation.table import Row, Table

NAME = "ascend_measured"
COLUMNS = (
    "group", "model", "framework", "phase", "device", "n_devices", "dp", "tp", "pp", "vpp", "ep", "cp", "sp", "micro_batch",
    "global_batch", "seq_len", "recompute", "zero", "other", "hidden", "layers", "heads", "kv_heads", "ffn", "vocab",
    "experts", "topk", "tok_s_dev", "step_s", "mfu_pct", "peak_mem_MB", "status", "date",
    "config_check",
)  # fmt: skip
MIB = 1 << 20
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
    check, status = row.text("config_check"), row.text("status")
    if check.split("(")[0].strip() in DOUBTED:
        raise UnusableRowError(f"config_check is {check}")
    if re.search(r"in card .*, yaml", row.cells.get("note", "")):
        raise UnusableRowError("the text and the file of the source differ")
    if status != "ok" and "OOM" not in status:
        raise UnusableRowError(f"status {status!r}: neither timed nor out of memory")
    if row.text("phase") == "lora":
        raise UnusableRowError("LoRA: most weights are frozen")
    if check == "slide":
        configuration = slide_configuration(row.count("dp"), row.count("tp"))
    elif "MindFormers" in row.text("framework"):
        configuration = _mindformers(row)
    elif "Megatron" in row.text("framework") or "MindSpeed" in row.text("framework"):
        configuration = _megatron(row)
    else:
        raise UnusableRowError(f"no reader for framework {row.text('framework')!r}")
    mfu_percent, memory_MiB = row.optional_number("mfu_pct"), row.optional_number("peak_mem_MB")
    measured = Measurement(
        step_time_s=_step_time_s(row, configuration) if status == "ok" else None,
        peak_memory_B=memory_MiB * MIB if memory_MiB else None,
        fits=status == "ok",
        mfu=mfu_percent / 100 if mfu_percent else None,
    )
    part = _part(row, configuration)
    return Case(row.line, row.text("group"), configuration, measured, part, cluster_of(row.text("device")))


def _part(row: Row, configuration: Configuration) -> str:
    """Software, and whether the network has experts."""
    if row.text("config_check") == "slide":
        return "slide"
    software = "MindFormers" if configuration.framework == "mindspore" else "MindSpeed"
    return f"{software} {'experts' if configuration.model.experts else 'dense'}"


def _megatron(row: Row) -> Configuration:
    zero = row.text("zero")
    options = megatron.options_of(megatron.recomputing(row.text("recompute")), row.text("other"))
    megatron.must_be_usable(options, packed="pack" in row.text("model"))
    _must_be_complete(row)
    if zero == "ZeRO-3":
        raise UnusableRowError("ZeRO-3 under DeepSpeed")
    model = transformer_of(row, row.text("model"), imbalance=megatron.imbalance(options))
    found = megatron.configuration(row, options, model, row.count("seq_len"), row.count("micro_batch"), "global_batch")
    return replace(
        found,
        sequence_parallel=row.flag("sp") and found.model_parallel > 1,
        optimizer_level=_LEVELS.get(zero, OptimizerLevel.NONE),
    )


_LEVELS = {
    "ZeRO1(dist-opt)": OptimizerLevel.LEVEL1,
    "ZeRO": OptimizerLevel.LEVEL1,
    "ZeRO-2": OptimizerLevel.LEVEL2,
}


def _mindformers(row: Row) -> Configuration:
    recompute = {"full": "recompute=True", "none": ""}.get(row.text("recompute"), row.text("recompute"))
    if recompute and "=" not in recompute:
        raise UnusableRowError("recomputation in words")
    settings = mindformers.settings_of(recompute, row.text("other"))
    _must_be_complete(row)
    model = transformer_of(row, row.text("model"), imbalance=mindformers.capacity(settings))
    stages, interleave = row.count("pp"), row.optional_count("vpp") or 1
    samples = row.count("micro_batch") * mindformers.copies(settings)
    return Configuration(
        model,
        row.count("seq_len"),
        data_parallel=row.count("dp"),
        model_parallel=row.count("tp"),
        sequence_parallel=row.flag("sp") and row.count("tp") > 1,
        context_parallel=row.optional_count("cp") or 1,
        expert_parallel=row.optional_count("ep") or 1,
        expert_model_parallel=mindformers.ranks_of_an_expert(model, row),
        pipeline_stages=stages,
        interleave=interleave,
        micro_batch_size=samples,
        micro_batch_num=micro_batches(row, row.count("dp") * samples),
        layers_on_stage=mindformers.layers_on_stage(settings, model.num_layers, stages, interleave),
        optimizer_level=mindformers.optimizer_level(row.text("zero")),
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


def _must_be_complete(row: Row) -> None:
    must_be_given(row, "n_devices", "dp", "tp", "pp", "micro_batch", "global_batch", "seq_len")
    devices_must_agree(row, "cp")


def _step_time_s(row: Row, configuration: Configuration) -> float | None:
    if row.text("tok_s_dev"):
        return configuration.tokens / (row.positive("tok_s_dev") * configuration.device_num)
    return row.positive("step_s") if row.text("step_s") else None
