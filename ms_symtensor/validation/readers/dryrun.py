"""ms_dryrun_memory_deepseek3.csv: peaks of MindSpore's dry runs of DeepSeek-V3 on 1,024 devices, of one pipeline stage each."""

from dataclasses import replace

from model_zoo.config import TransformerConfig
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.dataset import Case, Form, UnusableRowError
from ms_symtensor.validation.readers.common import Names, configuration, measured
from ms_symtensor.validation.readers.published import of_depth, published_model
from ms_symtensor.validation.table import Row

COLUMNS = ("model", "n_devices", "dp", "tp", "pp", "ep", "micro_batch", "seq_len", "dryrun_peak_MB")
CAPACITY = 1.5  # capacity_factor of MindFormers' DeepSeek-V3: experts have room for so many times their mean tokens
SECOND_TOKEN_BLOCKS = 1
BLOCKS = 61  # huggingface.co/deepseek-ai/DeepSeek-V3, config.json


def deepseek_v3(blocks: int = BLOCKS) -> TransformerConfig:
    """DeepSeek-V3 with its first `blocks` blocks: huggingface.co/deepseek-ai/DeepSeek-V3, config.json."""
    whole = published_model("DeepSeek-V3")
    assert whole.experts is not None
    return replace(of_depth(whole, blocks), experts=replace(whole.experts, load_imbalance=CAPACITY))


def case(row: Row) -> Case:
    """No recomputation, optimizer sharding, as many micro-batches as stages (the rule that the tool fills 1F1B by).

    Blocks and the multi-token prediction, 62 together, lie as the tool that made these runs spreads them: evenly, one more on
    the first stage and on those before the last, which holds the prediction. The peak is that of the stage that its
    num_layers, 61, modulo the stages counts from the end (hyper-parallel, fast-tuner: initial_offset, cal_model_layers_num,
    calculate_rank_id): on four stages, ep 4 and 8 differ by the experts of the 15 blocks of the last one.
    """
    if "deepseek" not in row.text("model").lower().replace("-", "") or "v3" not in row.text("model").lower():
        raise UnusableRowError(f"the dimensions of {row.text('model')} are not known")
    stages = row.count("pp")
    model = deepseek_v3()
    each, more = divmod(model.num_layers + SECOND_TOKEN_BLOCKS, stages)
    layers = [each + (stage == 0 < more or stages - more <= stage < stages - 1) for stage in range(stages)]
    layers[-1] -= SECOND_TOKEN_BLOCKS
    step = configuration(
        row,
        model,
        Names(micro_batches="pp"),
        sequence_parallel=row.count("tp") > 1,
        expert_model_parallel=1,
        layers_on_stage=tuple(layers),
        optimizer_level=OptimizerLevel.LEVEL1,
        framework="mindspore",
    )
    stage = min(stages - model.num_layers % stages, stages - 1)
    found = measured(row, step, "dryrun_peak_MB", fits=None, stage=stage)
    return Case(row.line, f"DeepSeek-V3|pp{stages}", step, found)


FORM = Form("ms_dryrun_memory_deepseek3", COLUMNS, case)
