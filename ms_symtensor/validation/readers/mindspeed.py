"""st_baselines.csv: step time and memory per rank of MindSpeed-LLM's tests on Ascend (github.com/Ascend/MindSpeed-LLM)."""

from ms_symtensor.validation.configuration import Configuration
from ms_symtensor.validation.dataset import Case, Measurement, UnusableRowError
from ms_symtensor.validation.readers import megatron
from ms_symtensor.validation.readers.common import must_be_given
from ms_symtensor.validation.readers.models import transformer_of
from ms_symtensor.validation.table import Row

NAME = "st_baselines"
COLUMNS = (
    "model_key", "name", "date", "n_devices", "dp", "tp", "pp", "vpp", "ep", "cp", "mbs", "gbs", "seq", "hidden", "layers",
    "heads", "kv", "ffn", "experts", "topk", "vocab", "recompute", "zero", "features", "step_ms", "tok_s_dev", "max_alloc_MB",
    "check",
)  # fmt: skip
MIB = 1 << 20


def case(row: Row) -> Case:
    """Megatron's options decide; a row without step time and throughput still has its memory."""
    if row.text("check") not in ("", "ok"):
        raise UnusableRowError(row.text("check"))
    options = megatron.options_of(row.text("recompute"), row.text("zero"), row.text("features"))
    megatron.must_be_usable(options, packed="pack" in row.text("name"))
    model = transformer_of(row, row.text("name"), "kv", megatron.imbalance(options))
    must_be_given(row, "n_devices", "dp", "tp", "pp", "mbs", "gbs", "seq")
    configuration = megatron.configuration(row, options, model, row.count("seq"), row.count("mbs"), "gbs")
    memory_MiB = row.optional_number("max_alloc_MB")
    measured = Measurement(
        step_time_s=_step_time_s(row, configuration),
        peak_memory_B=memory_MiB * MIB if memory_MiB else None,
        fits=True,
        first_step=True,  # Megatron reports its memory once, after the first iteration
    )
    if measured.step_time_s is None and measured.peak_memory_B is None:
        raise UnusableRowError("neither step time nor memory was measured")
    return Case(row.line, row.text("model_key"), configuration, measured)


def _step_time_s(row: Row, configuration: Configuration) -> float | None:
    if row.text("step_ms"):
        return row.positive("step_ms") / 1e3
    if row.text("tok_s_dev"):
        return configuration.tokens / (row.positive("tok_s_dev") * configuration.device_num)
    return None
