"""st_baselines.csv: step time and memory per rank of MindSpeed-LLM's tests on Ascend (github.com/Ascend/MindSpeed-LLM)."""

from ms_symtensor.validation.dataset import Case, Form, UnusableRowError
from ms_symtensor.validation.readers import megatron
from ms_symtensor.validation.readers.common import Names, measured, must_be_given
from ms_symtensor.validation.readers.models import transformer_of
from ms_symtensor.validation.table import Row

COLUMNS = (
    "model_key", "name", "date", "n_devices", "dp", "tp", "pp", "vpp", "ep", "cp", "mbs", "gbs", "seq", "hidden", "layers",
    "heads", "kv", "ffn", "experts", "topk", "vocab", "recompute", "zero", "features", "step_ms", "tok_s_dev", "max_alloc_MB",
    "check",
)  # fmt: skip


def case(row: Row) -> Case:
    """Megatron's options decide; a row without step time and throughput still has its memory."""
    if row.text("check") not in ("", "ok"):
        raise UnusableRowError(row.text("check"))
    options = megatron.options_of(row.text("recompute"), row.text("zero"), row.text("features"))
    megatron.must_be_usable(options, packed="pack" in row.text("name"))
    model = transformer_of(row, row.text("name"), "kv", megatron.imbalance(options))
    must_be_given(row, "n_devices", "dp", "tp", "pp", "mbs", "gbs", "seq")
    step = megatron.configuration(row, options, model, Names("mbs", "gbs", "seq"))
    # Megatron reports its memory once, after the first iteration
    found = measured(row, step, "step_ms", "tok_s_dev", "max_alloc_MB", first_step=True)
    return Case(row.line, row.text("model_key"), step, found)


FORM = Form("st_baselines", COLUMNS, case)
