"""The collectives of all ranks of a plan, and the bytes between every two ranks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.program.program import COLLECTIVES, UNKNOWN_B, Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.traffic.algorithms import flows

SEND = "point to point"


class Message(NamedTuple):
    """`number` equal collectives (or Sends, from the first rank to the second) over `ranks` in a step."""

    phase: str
    kind: str
    ranks: tuple[int, ...]
    size_B: int
    number: int


class Sort(NamedTuple):
    """What bytes are told apart by."""

    phase: str
    kind: str
    algorithm: str


@dataclass(frozen=True)
class Traffic:
    """Bytes of a step from rank to rank, by phase, collective and algorithm; `unknown`: collectives of unknown size, which
    count nothing.
    """

    device_num: int
    pairs: Mapping[Sort, Mapping[tuple[int, int], float]]
    unknown: int

    @cached_property
    def total_B(self) -> Mapping[tuple[int, int], float]:
        """Bytes of all sorts between two ranks."""
        found: dict[tuple[int, int], float] = {}
        for pairs in self.pairs.values():
            for pair, size_B in pairs.items():
                found[pair] = found.get(pair, 0.0) + size_B
        return found


def messages(programs: Sequence[Program] | Sequence[StageProgram]) -> tuple[Message, ...]:
    """Those of all ranks, equal ones of one group together; a Send stands for its Receive too."""
    found: dict[tuple[str, str, tuple[int, ...], int], int] = {}
    for program in programs:
        for key, times in _messages(program):
            found[key] = found.get(key, 0) + times
    return tuple(Message(*key, times) for key, times in sorted(found.items()))


def _messages(program: Program | StageProgram) -> Iterator[tuple[tuple[str, str, tuple[int, ...], int], int]]:
    micro = program.micro if isinstance(program, StageProgram) else program
    start = program.ranks.start if isinstance(program, StageProgram) else 0
    for node in micro.nodes:
        times = program.times(node) if isinstance(program, StageProgram) else 1
        types = [micro.tensors[t] for t in (*node.inputs, *node.outputs)]
        if node.kind in COLLECTIVES and node.group is not None:
            known = types[0].is_known and types[-1].is_known
            size_B = max(types[0].size_B, types[-1].size_B) if known else UNKNOWN_B
            groups = dict.fromkeys(node.group.ranks(rank) for rank in range(micro.device_num))
            for group in groups:
                yield (node.phase.value, node.kind, tuple(start + rank for rank in group), size_B), times
        elif node.kind == "Send" and node.peer is not None and isinstance(program, StageProgram):
            further = (node.peer - program.stage) * micro.device_num
            for rank in program.ranks:
                yield (node.phase.value, "Send", (rank, rank + further), types[0].size_B), times


def traffic(found: Sequence[Message], cluster: Cluster, device_num: int) -> Traffic:
    """The bytes between every two of `device_num` ranks."""
    pairs: dict[Sort, dict[tuple[int, int], float]] = {}
    unknown = 0
    for one in found:
        if one.size_B == UNKNOWN_B:
            unknown += one.number
            continue
        if one.kind == "Send":
            _add(pairs, Sort(one.phase, "Send", SEND), (one.ranks[0], one.ranks[1]), one.number * one.size_B)
            continue
        for flow in flows(cluster, one.kind, one.ranks, one.size_B):
            sort = Sort(one.phase, one.kind, flow.algorithm)
            _add(pairs, sort, (flow.source, flow.target), one.number * flow.size_B)
    return Traffic(device_num, {sort: dict(sorted(of.items())) for sort, of in sorted(pairs.items())}, unknown)


def _add(pairs: dict[Sort, dict[tuple[int, int], float]], sort: Sort, pair: tuple[int, int], size_B: float) -> None:
    of = pairs.setdefault(sort, {})
    of[pair] = of.get(pair, 0.0) + size_B
