"""`operator_strategy.json`: the strategies of operators as MindSpore loads them."""

from ms_symtensor.strategy.folder import OPERATOR_FILE
from ms_symtensor.strategy.operator_json import operator_strategy_text
from ms_symtensor.targets.exporter import CannotSayError, Exporter, Planned


def _files(planned: Planned) -> dict[str, str]:
    if planned.plan.pipeline is not None and planned.plan.pipeline.needs_config:
        raise CannotSayError("MindSpore reads none of virtual stages")
    return {OPERATOR_FILE: operator_strategy_text(planned.graph, planned.plan)}


EXPORTER = Exporter(OPERATOR_FILE, _files)
