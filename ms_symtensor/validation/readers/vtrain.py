"""vtrain_a100.csv: iteration times of GPT models under Megatron-DeepSpeed on A100 (github.com/VIA-Research/vTrain)."""

from ms_symtensor.cost.runtime import Stored
from ms_symtensor.validation.configuration import (
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    AttentionKernel,
)
from ms_symtensor.validation.dataset import Case, Form, UnusableRowError
from ms_symtensor.validation.readers import megatron
from ms_symtensor.validation.readers.common import configuration, measured
from ms_symtensor.validation.readers.families import model_like
from ms_symtensor.validation.table import Row

COLUMNS = (
    "group", "hidden", "layers", "heads", "seq_len", "n_devices", "dp", "tp", "pp", "micro_batch", "global_batch",
    "step_ms", "consistent",
)  # fmt: skip
DEVICES_OF_A_SERVER = 8


def case(row: Row) -> Case:
    """Megatron's GPT: LayerNorm, GeLU, learned positions, dropout, tied embeddings, no flash attention.

    Recomputation is not recorded. The runs on more than one server cannot fit without; the others are shorter than a step
    with recomputation can be. On one server the vocabulary is cut as it is, 50257 // tp (src/model/gpt_modeling.py there):
    the time that a micro-batch takes beside its blocks is that of unaligned products with tp 1, 4 and 8, of an aligned one
    with tp 2. Its gradients take the time of two bytes, float16's. The runs on more servers show neither: they are taken to
    be Megatron-LM's, with its padding and with bfloat16's gradients of four bytes.
    """
    if row.text("consistent") and not row.flag("consistent"):
        raise UnusableRowError("the source is inconsistent (column consistent)")
    hidden, heads = row.count("hidden"), row.count("heads")
    # github.com/VIA-Research/vTrain, src/config.py: GPT-2's vocabulary
    model = model_like("gpt", hidden, row.count("layers"), heads, heads, 4 * hidden)
    one_server = row.count("n_devices") <= DEVICES_OF_A_SERVER
    step = configuration(
        row,
        model,
        recomputation=NO_RECOMPUTATION if one_server else FULL_RECOMPUTATION,
        attention=AttentionKernel.FUSED_SOFTMAX,
        precision="float16" if one_server else "bfloat16",
        bytes_per_parameter=megatron.FLOAT16 if one_server else Stored(),
        padded_vocabulary=not one_server,
        overlap_gradients=False,
    )
    part = "2-8 devices" if one_server else "64-512 devices"
    return Case(row.line, row.text("group"), step, measured(row, step, "step_ms"), part)


FORM = Form("vtrain_a100", COLUMNS, case)
