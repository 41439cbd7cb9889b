"""MindFormers 2.1 in PyNative mode as a target: its plans are a search of their own (`planning`)."""

from ms_symtensor.targets.mindformers_pynative import NAME
from ms_symtensor.targets.target import Target

MINDFORMERS_PYNATIVE = Target(NAME, "MindFormers 2.1 in PyNative mode, on hyper-parallel: one YAML for its trainer")
