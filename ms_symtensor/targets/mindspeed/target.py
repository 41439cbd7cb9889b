"""MindSpeed-LLM: what the arguments of its launch scripts can say."""

from ms_symtensor.strategy.folder import MINDSPEED_FILE
from ms_symtensor.targets.mindspeed.rules import RULES
from ms_symtensor.targets.target import Target

MINDSPEED = Target(
    "mindspeed",
    "arguments of MindSpeed-LLM's launch scripts: all blocks alike",
    RULES,
    needs=(MINDSPEED_FILE,),
    runtime="mindspeed",
)
