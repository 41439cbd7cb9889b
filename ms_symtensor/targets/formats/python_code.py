"""`shard.py`: the plan as Python code that calls shard()."""

from ms_symtensor.strategy.folder import CODE_FILE
from ms_symtensor.strategy.python_code import python_code
from ms_symtensor.targets.exporter import Exporter, Planned


def _files(planned: Planned) -> dict[str, str]:
    return {CODE_FILE: python_code(planned.graph, planned.plan)}


EXPORTER = Exporter(CODE_FILE, _files)
