"""A plan's traffic on a fabric: bytes between ranks, loads of links in rank order and as placed, collisions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ms_symtensor.program.program import UNKNOWN_B, Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.traffic.collisions import Collisions, collisions
from ms_symtensor.traffic.exchanged import Message, Traffic, messages, traffic
from ms_symtensor.traffic.fabric import Leaves, Link, loads_B, node_bytes, node_ranks, seconds_of
from ms_symtensor.traffic.placement import Bytes, Placed, placed


@dataclass(frozen=True)
class RankBytes:
    """Collectives that `verify` compares on a rank, Sends and Receives included, and their bytes; those of unknown size count
    none.
    """

    rank: int
    collectives: int
    size_B: int


@dataclass(frozen=True)
class PlanTraffic:
    """The traffic of a plan.

    Attributes:
        messages: the collectives of all ranks.
        of: bytes between ranks.
        verified: of the first rank of every stage.
        leaves: None where no leaf switches were told of; then every node counts as under one.
        between_B: bytes [node, node].
        placed: the leaf of every node.
        rank_order_B, placed_B: over every link.
        link_s: seconds of every link as placed.
        collisions: estimates, as placed.
    """

    device_num: int
    node_size: int
    messages: tuple[Message, ...]
    of: Traffic
    verified: tuple[RankBytes, ...]
    leaves: Leaves | None
    between_B: Bytes
    placed: Placed
    rank_order_B: Mapping[Link, float]
    placed_B: Mapping[Link, float]
    link_s: Mapping[Link, float]
    rank_order_s: float
    collisions: tuple[Collisions, ...]

    @property
    def most_loaded_s(self) -> float:
        """Seconds of the most loaded link as placed."""
        return max(self.link_s.values(), default=0.0)

    @property
    def node_at(self) -> tuple[int, ...]:
        """The node of every server, servers leaf by leaf."""
        nodes = range(len(self.placed.leaf_of))
        return tuple(sorted(nodes, key=lambda node: (self.placed.leaf_of[node], node)))


def plan_traffic(
    plan: Plan,
    programs: Sequence[Program] | Sequence[StageProgram],
    leaves: Leaves | None,
    positions: Sequence[int] | None = None,
) -> PlanTraffic:
    """The traffic of `plan`, whose programs these are, under `leaves`. With `positions` ranks run there, and are called so."""
    cluster, devices = plan.planned_for, plan.device_num
    found = messages(programs)
    if positions is not None:
        found = tuple(one._replace(ranks=tuple(positions[rank] for rank in one.ranks)) for one in found)
    of = traffic(found, cluster, devices)
    size, between = node_ranks(cluster), node_bytes(of, cluster)
    nodes = len(between)
    room = nodes if leaves is None else leaves.ranks // size
    best = placed(between, room)
    ordered = tuple(node // room for node in range(nodes))
    rank_order_B = loads_B(of, cluster, leaves, ordered)
    placed_B = loads_B(of, cluster, leaves, best.leaf_of)
    return PlanTraffic(
        devices,
        min(size, devices),
        found,
        of,
        tuple(_verified(program) for program in programs),
        leaves,
        between,
        best,
        rank_order_B,
        placed_B,
        {link: seconds_of(link, size_B, cluster, leaves) for link, size_B in placed_B.items()},
        max((seconds_of(link, size_B, cluster, leaves) for link, size_B in rank_order_B.items()), default=0.0),
        () if leaves is None else collisions(of, leaves, best.leaf_of, size),
    )


def _verified(program: Program | StageProgram) -> RankBytes:
    rank = program.ranks.start if isinstance(program, StageProgram) else 0
    every = program.collectives(rank)
    return RankBytes(rank, len(every), sum(one.size_B for one in every if one.size_B != UNKNOWN_B))


def server_num(device_num: int, node_size: int) -> int:
    """Servers that so many devices take."""
    return math.ceil(device_num / node_size)
