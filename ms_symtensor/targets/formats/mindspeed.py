"""`mindspeed.sh`: the launch script of MindSpeed-LLM whose arguments say the plan."""

from ms_symtensor.strategy.folder import MINDSPEED_FILE
from ms_symtensor.targets.exporter import CannotSayError, Exporter, Planned
from ms_symtensor.targets.mindspeed.dimensions import dimensions
from ms_symtensor.targets.mindspeed.options import layout_options
from ms_symtensor.targets.mindspeed.script import script

RUNTIME = "mindspeed"


def _files(planned: Planned) -> dict[str, str]:
    plan, uniform = planned.plan, planned.uniform
    if plan.runtime != RUNTIME:
        return {}  # no plan for this software
    if uniform is None:
        raise CannotSayError("MindSpeed cuts all blocks alike, and this plan need not: plan with --target mindspeed")
    devices, sizes = uniform.layout.device_num, [level.ranks for level in plan.planned_for.levels if level.ranks]
    per_node = min(devices, sizes[0] if sizes else devices)
    options = layout_options(uniform.config, uniform.layout, plan.hide)
    return {MINDSPEED_FILE: script(dimensions(uniform.config), options, per_node, -(-devices // per_node))}


EXPORTER = Exporter(MINDSPEED_FILE, _files)
