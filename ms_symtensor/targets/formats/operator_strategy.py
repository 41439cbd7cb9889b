"""`operator_strategy.json`: the strategies of operators as MindSpore loads them."""

from ms_symtensor.strategy.folder import OPERATOR_FILE
from ms_symtensor.strategy.operator_json import operator_strategy_text
from ms_symtensor.targets.exporter import CannotSayError, Exporter, Planned

MOST_MICRO_BATCHES = 4096
"""The file has every operator once more for each: two blocks of GPT-2 take some 200 MB for so many (empirical)."""


def _files(planned: Planned) -> dict[str, str]:
    pipeline = planned.plan.pipeline
    if pipeline is not None and pipeline.needs_config:
        raise CannotSayError("MindSpore reads none of virtual stages")
    if pipeline is not None and pipeline.micro_batch_num > MOST_MICRO_BATCHES:
        raise CannotSayError(
            f"it names operators of every micro-batch, and there are {pipeline.micro_batch_num}, more than {MOST_MICRO_BATCHES}"
        )
    return {OPERATOR_FILE: operator_strategy_text(planned.graph, planned.plan)}


EXPORTER = Exporter(OPERATOR_FILE, _files)
