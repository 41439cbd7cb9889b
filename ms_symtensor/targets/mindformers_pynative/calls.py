"""Collectives of one rank and its sharded units, traced or predicted: frozen data that can be compared."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

ROUTED = "GroupedMLP"
"""The unit of a layer's routed experts, by the name of their module."""
ITEM_B = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, order=True)
class Call:
    """A collective of one micro-batch."""

    phase: str
    """`forward`, `backward` or `recompute`."""
    kind: str
    """`all_gather`, `reduce_scatter`, `all_reduce` or `all_to_all`."""
    dtype: str
    size_B: int
    """Bytes of one rank's input."""
    ranks: int
    """How many ranks take part."""


Calls = Counter[Call]
"""How often each is made in one micro-batch."""


@dataclass(frozen=True, order=True)
class Parameter:
    """A trained parameter of one rank, cut by tensor or expert parallelism but not yet by `fully_shard`."""

    dtype: str
    elements: int
    whole: bool = False
    """Left whole: its first dim does not divide by the ranks that would share it."""
    partial: int = 1
    """Ranks of tensor parallelism over which its gradient is a partial sum, because it is whole on each of them."""

    @property
    def size_B(self) -> int:
        return self.elements * ITEM_B[self.dtype]


@dataclass(frozen=True)
class Unit:
    """Parameters that one module gathers for its use."""

    name: str
    parameters: tuple[Parameter, ...]
    shards: int
    """Ranks that share each parameter."""
    replicas: int
    """Groups of them that hold the same."""
    reshards: bool
    """Whether it gives the gathered parameters up after the forward pass."""

    @property
    def routed(self) -> bool:
        """Whether it is a layer's routed experts, which lie on a mesh of their own."""
        return self.name == ROUTED

    def gathered_B(self) -> int:
        """Bytes of its parameters as they are used."""
        return sum(parameter.size_B for parameter in self.parameters)

    def held_elements(self) -> int:
        """Elements that stay on a rank."""
        return sum(p.elements if p.whole else p.elements // self.shards for p in self.parameters)


def counted(calls: Iterable[tuple[Call, int]]) -> Calls:
    """Calls with how often they are made, those that are alike as one."""
    found: Calls = Counter()
    for call, count in calls:
        found[call] += count
    return found
