"""The targets: the software that a plan is for, which says how layouts are restricted and what is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ms_symtensor.errors import InputError
from ms_symtensor.strategy.folder import MINDSPEED_FILE
from ms_symtensor.targets.mindformers.rules import RULES as MINDFORMERS_RULES
from ms_symtensor.targets.mindformers_pynative import NAME
from ms_symtensor.targets.mindspeed.rules import RULES as MINDSPEED_RULES
from ms_symtensor.uniform.rules import Rules


@dataclass(frozen=True)
class Target:
    """The software that runs a plan.

    Attributes:
        name: as `--target` takes it.
        text: what it runs, in words.
        rules: those of its uniform layouts; None: every operator has a layout of its own (`shard()`).
        runtime: whose habits the price assumes, unless the user says; "": the default.
        needs: names of the exporters that must be able to say the plan.
    """

    name: str
    text: str
    rules: Rules | None = None
    needs: tuple[str, ...] = ()
    runtime: str = ""


MINDSPORE = Target("mindspore", "every operator in a layout of its own, told by shard()")
MINDFORMERS = Target(
    "mindformers",
    "degrees of one training file of MindFormers in graph mode: all blocks alike",
    MINDFORMERS_RULES,
    needs=("mindformers.yaml",),
)
MINDFORMERS_PYNATIVE = Target(NAME, "MindFormers 2.1 in PyNative mode, on hyper-parallel: one YAML for its trainer")
"""Its plans are a search of their own (`mindformers_pynative.planning`)."""
MINDSPEED = Target(
    "mindspeed",
    "arguments of MindSpeed-LLM's launch scripts: all blocks alike",
    MINDSPEED_RULES,
    needs=(MINDSPEED_FILE,),
    runtime="mindspeed",
)
TARGETS: Mapping[str, Target] = MappingProxyType(
    {one.name: one for one in (MINDSPORE, MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED)}
)
"""The first is the default."""


def target_of(name: str) -> Target:
    """The target called `name`. InputError for another name."""
    if name not in TARGETS:
        raise InputError(f"unknown target {name!r}: known are {', '.join(TARGETS)}")
    return TARGETS[name]
