"""The targets by their names."""

from collections.abc import Mapping
from types import MappingProxyType

from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers.target import MINDFORMERS
from ms_symtensor.targets.mindformers_pynative.target import MINDFORMERS_PYNATIVE
from ms_symtensor.targets.mindspeed.target import MINDSPEED
from ms_symtensor.targets.mindspore import MINDSPORE
from ms_symtensor.targets.target import Target

TARGETS: Mapping[str, Target] = MappingProxyType(
    {one.name: one for one in (MINDSPORE, MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED)}
)
"""The first is the default."""


def target_of(name: str) -> Target:
    """The target called `name`. InputError for another name."""
    if name not in TARGETS:
        raise InputError(f"unknown target {name!r}: known are {', '.join(TARGETS)}")
    return TARGETS[name]
