"""One rank of a world that is described, not run: what it called, what it keeps sharded, and in which phase it is."""

import math
from dataclasses import dataclass, field
from typing import Any

MINDFORMERS = "mindformers"
"""A call made by MindFormers' own code, or by MindSpore's gradient of one."""


@dataclass(frozen=True)
class Call:
    """One collective: what goes in, among which ranks, and by whom."""

    phase: str
    """`forward`, `backward` or `recompute`."""
    kind: str
    dtype: str
    size_B: int
    """Bytes of this rank's input."""
    ranks: tuple[int, ...]
    by: str
    """MINDFORMERS, or the part of hyper-parallel that the stand-in models."""


@dataclass
class Unit:
    """One `fully_shard` unit: parameters that are gathered for a module's use."""

    name: str
    parameters: list[tuple[Any, bool]]
    """With whether each stays whole."""
    shards: tuple[int, ...]
    """Ranks that share a parameter."""
    replica_ranks: tuple[int, ...]
    """Ranks that hold the same part."""
    reshards: bool


@dataclass
class Session:
    """What one rank does. Mutable: the tracer writes into it while MindFormers runs."""

    rank: int = 0
    world_size: int = 1
    real: bool = False
    """Processes that communicate, rather than one that records."""
    phase: str = "forward"
    calls: list[Call] = field(default_factory=list)
    silent: bool = False
    """In a call whose result was kept: it is recomputed for its gradient's sake, and not noted."""
    recomputes: bool = False
    """In a forward pass that runs once more before its gradient."""
    kept: list[Any] = field(default_factory=list)
    """What calls that are left out of recomputation received."""
    units: list[Unit] = field(default_factory=list)
    placements: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict)
    """By the parameter's id: the parameter, its mesh, its placements."""
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    uneven: list[str] = field(default_factory=list)
    """Cuts that leave something over."""

    def ranks(self, group: str | None) -> tuple[int, ...]:
        """The ranks of a group; of None, the world."""
        return self.groups[group] if group in self.groups else tuple(range(self.world_size))

    def record(self, kind: str, tensor: Any, ranks: tuple[int, ...], by: str = MINDFORMERS) -> None:
        """Note a call on `tensor` among `ranks`; one rank alone communicates nothing."""
        if len(ranks) > 1 and not self.silent:
            self.calls.append(Call(self.phase, kind, str(tensor.dtype).lower(), size_of(tensor), ranks, by))


CURRENT = Session()
"""The rank of this process. One process is one rank at a time: `begin` turns it into another."""


def begin(rank: int, world_size: int, real: bool = False) -> Session:
    """Forget the last rank, and be another."""
    CURRENT.__init__(rank, world_size, real)  # type: ignore[misc]
    return CURRENT


def size_of(tensor: Any) -> int:
    """Bytes of a tensor, which may have no memory."""
    return int(math.prod(tensor.shape) * tensor.itemsize)
