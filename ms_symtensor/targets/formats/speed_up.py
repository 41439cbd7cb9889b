"""`parallel_speed_up.json`: the overlap that MindSpore is told, where the plan has any."""

import json

from ms_symtensor.strategy.folder import SPEED_UP_FILE
from ms_symtensor.targets.exporter import Exporter, Planned


def _files(planned: Planned) -> dict[str, str]:
    names = planned.plan.overlap
    return {SPEED_UP_FILE: json.dumps(dict.fromkeys(names, True), indent=1) + "\n"} if names else {}


EXPORTER = Exporter(SPEED_UP_FILE, _files)
