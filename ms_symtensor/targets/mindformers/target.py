"""MindFormers in graph mode: what its training files can say."""

from ms_symtensor.targets.mindformers.rules import RULES
from ms_symtensor.targets.target import Target

MINDFORMERS = Target(
    "mindformers",
    "degrees of one training file of MindFormers in graph mode: all blocks alike",
    RULES,
    needs=("mindformers.yaml",),
)
