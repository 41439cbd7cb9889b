"""MindSpore: every operator in a layout of its own, told by shard()."""

from ms_symtensor.targets.target import Target

MINDSPORE = Target("mindspore", "every operator in a layout of its own, told by shard()")
