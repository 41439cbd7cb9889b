"""What a rank's program spends its time on, item by item: who works or sends, in which pass, how often.

A bill holds nothing of the cluster: the same one is priced on any, which is what fitting a cluster's numbers to measured steps
needs.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.inner import work_inside
from ms_symtensor.cost.move import VIEWS, local_time_s, message_s
from ms_symtensor.cost.operator import evaluate, kernel_num
from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.ops.signature import OpView, Signature
from ms_symtensor.program.fusion import FUSED, fused_cells, is_free
from ms_symtensor.program.liveness import FUSED_IN_PLACE
from ms_symtensor.program.meanings import Meanings, default_strategy
from ms_symtensor.program.program import COLLECTIVES, Node, Phase, Program, Role
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.tensor.graph import Graph, Op


class Part(str, Enum):
    """What an item is for; all but COMPUTE is communication, which may run beside computation."""

    COMPUTE = "compute"
    TENSOR = "tensor"  # between ranks that cut an operator or a sequence: partial sums, redistribution
    EXPERT = "expert"  # tokens to their experts and back
    WEIGHTS = "weights"  # gathers of weights that the optimizer shards
    GRADIENTS = "gradients"  # sums of weights' gradients
    BORDER = "point_to_point"  # between pipeline stages


@dataclass(frozen=True, eq=False)
class Product:
    """The own work of an operator on one device, forward, or backward where it computes so many gradients (`products`)."""

    op: OpView
    sig: Signature
    cuts: Mapping[str, int]
    products: int
    is_backward: bool


class Pass(NamedTuple):
    """A node that moves `traffic_B` bytes through memory."""

    kind: str
    traffic_B: int


class Message(NamedTuple):
    """A collective of `size_B` bytes over `ranks`, or a Send from the first of them to the second."""

    kind: str
    ranks: tuple[int, ...]
    size_B: int


Work = Product | Pass | Message


class Key(NamedTuple):
    """What an item is for, in which pass, whether it is done once per step (or in every micro-batch), and the part of the network
    it belongs to, for people.
    """

    part: Part
    phase: Phase
    once: bool
    label: str


@dataclass(frozen=True)
class Bill:
    """How often each work is done, by what it is for; `units`: the blocks whose items these are, and one for what is in none."""

    items: Mapping[Key, Mapping[Work, int]]
    units: int = 1


@dataclass(frozen=True)
class Written:
    """The program of a rank: of one micro-batch, `stage` is that whose Sends go to others (None: they are not counted), and
    `is_once` says which nodes, none of them an operator's own work, are run once per step.

    `program`: `partition(graph, plan)`, or what `program.fusion` makes of it where a run-time `fuses`. `known`: what the
    operators of `graph` mean.
    """

    graph: Graph
    plan: StagePlan
    program: Program
    known: Meanings
    fuses: frozenset[str] = frozenset()
    is_once: Callable[[Node], bool] = lambda _: False
    stage: int | None = None

    @classmethod
    def of(
        cls,
        graph: Graph,
        plan: StagePlan,
        program: Program | StageProgram,
        known: Meanings,
        fuses: frozenset[str] = frozenset(),
    ) -> "Written":
        """The program of a whole step, or that of one micro-batch."""
        if isinstance(program, StageProgram):
            return cls(program.graph, plan, program.micro, known, fuses, program.is_once, program.stage)
        return cls(graph, plan, program, known, fuses)


class Entry(NamedTuple):
    """`often` times `work` of a program, for `key`; `node`: the position of the node that it is the time of (-1: of none), in
    `block`. A sum of gradients is in the block of the last one that it adds: that which reads the tensor, not that which made it.
    """

    node: int
    key: Key
    work: Work
    block: str | None
    often: int = 1


def bill_of(of: Written, times: Mapping[str, int] = MappingProxyType({})) -> Bill:
    """The bill of one pass through `of`. What is received is counted where it is sent.

    `times`: how many equal blocks some of the blocks stand for.
    """
    items: dict[Key, dict[Work, int]] = {}
    for entry in entries_of(of):
        works = items.setdefault(entry.key, {})
        works[entry.work] = works.get(entry.work, 0) + entry.often * times.get(entry.block or "", 1)
    return Bill(items, 1 + sum(times.get(block, 1) for block in of.graph.blocks))


def entries_of(of: Written) -> Iterator[Entry]:
    """What `bill_of` counts, one by one: the work of operators, then that of all other nodes. The gradients of an operator are
    one entry, at the first node of its backward pass.
    """
    cells = fused_cells(of.graph, of.known, of.fuses)
    program, stage = of.program, of.stage
    products: dict[str, int] = {}
    recomputation: dict[str, int] = {}
    first: dict[tuple[str, Phase], int] = {}
    block_of: dict[int, str | None] = {}  # of gradients
    for number, node in enumerate(program.nodes):
        if node.phase is Phase.BACKWARD:
            block_of.update(dict.fromkeys(node.outputs, node.block))
        if node.role is Role.WORK:
            first.setdefault((node.op, node.phase), number)
            if node.phase is Phase.BACKWARD:
                products[node.op] = products.get(node.op, 0) + len(node.outputs)
            elif node.phase is Phase.RECOMPUTE:
                recomputation[node.op] = recomputation.get(node.op, 0) + 1
    labels: dict[str, str] = {}
    transparent: set[str] = set()
    known_works: dict[tuple, Product] = {}
    for op, name, seen, sig in _works(of.graph, of.known):
        label = labels[name] = label_of(op)
        if not sig.shardable:
            transparent.add(name)
            continue
        if name in cells:
            continue
        cuts = _cuts(op, seen, sig, of.plan)
        for phase, number in ((Phase.FORWARD, 0), (Phase.RECOMPUTE, 0), (Phase.BACKWARD, products.get(name, 0))):
            is_backward = phase is Phase.BACKWARD
            often = recomputation.get(name, 0) if phase is Phase.RECOMPUTE else 1
            if often and (number or not is_backward):
                form = id(sig), tuple(cuts.items()), number  # equal operators share their signature
                product = known_works.setdefault(form, Product(seen, sig, cuts, number, is_backward))
                key = Key(Part.COMPUTE, phase, False, label)
                yield Entry(first.get((name, phase), -1), key, product, op.block, often)
    for number, node in enumerate(program.nodes):
        if node.kind == "Receive" or (node.kind == "Send" and stage is None) or is_free(node, cells, of.fuses):
            continue
        if node.role is Role.WORK and node.op not in transparent and node.kind not in (FUSED, FUSED_IN_PLACE):
            continue
        label = labels.get(node.op, "")
        part, work = _of_node(program, node, label, stage)
        once = node.role is not Role.WORK and of.is_once(node)
        block = block_of.get(max(node.inputs), node.block) if node.role is Role.ADD else node.block
        yield Entry(number, Key(part, node.phase, once, label), work, block)


def work_s(work: Work, cluster: Cluster) -> float:
    """Seconds of one `work` on `cluster`."""
    if isinstance(work, Pass):
        return float(local_time_s(cluster, work.kind, work.traffic_B))
    if isinstance(work, Message):
        return message_s(cluster, work.kind, work.ranks, work.size_B)
    cost = evaluate(work.op, work.sig, work.products, [work.cuts], cluster)
    return float((cost.backward_s if work.is_backward else cost.forward_s)[0])


def launches_of(work: Work) -> int:
    """Kernels and collectives that a host launches for `work`."""
    if isinstance(work, Product):
        return kernel_num(work.op, work.sig, work.products, work.is_backward)
    return int(not (isinstance(work, Pass) and work.kind in VIEWS))


def traffic_B(program: Program, node: Node) -> tuple[int, int]:
    """Bytes that `node` reads and writes."""
    return sum(program.tensors[t].size_B for t in node.inputs), sum(program.tensors[t].size_B for t in node.outputs)


def label_of(op: Op) -> str:
    """The part of a network that `op` belongs to, for people: by the cells of the zoo and of MindFormers; "" elsewhere."""
    cells = op.cell
    if "experts" in cells:
        return (
            "experts: products" if op.type in ("BatchMatMul", "GroupedMatmul", "GroupedMatmulV4") else "experts: rest"
        )
    if "router" in cells:
        return "experts: router"
    for name in ("attention", "feed_forward", "shared", "head", "loss"):
        if name in cells:
            return "experts: permutation" if _MIXTURE.search(op.name) else name.replace("_", " ")
    return "rest"


_MIXTURE = re.compile(r"-(MixtureOfExperts|MoE\w*)/[^/]*$")
"""What a mixture of experts does itself, outside of its router and its experts."""


def _of_node(program: Program, node: Node, label: str, stage: int | None) -> tuple[Part, Work]:
    read_B, made_B = traffic_B(program, node)
    if node.kind == "Send" and node.peer is not None and stage is not None:
        ranks = (stage * program.device_num, node.peer * program.device_num)
        return Part.BORDER, Message("Send", ranks, read_B)
    if node.group is not None and node.kind in COLLECTIVES:
        return _part(node, label), Message(node.kind, node.group.ranks(), max(read_B, made_B))
    return Part.COMPUTE, Pass(node.kind, read_B + made_B)


def _part(node: Node, label: str) -> Part:
    if node.role is Role.SYNC:
        return Part.GRADIENTS
    if node.role is Role.WEIGHT:
        return Part.WEIGHTS
    if label.startswith("experts"):
        return Part.EXPERT
    return Part.TENSOR


def _works(graph: Graph, known: Meanings) -> Iterator[tuple[Op, str, OpView, Signature]]:
    """All that does work: its operator in the graph, its name in the program, its view and signature."""
    for op in graph.ops:
        seen, sig = known[op.name]
        if op.body is not None:
            yield from ((op, *inner) for inner in work_inside(op, sig))
        else:
            yield op, op.name, seen, sig


def _cuts(op: Op, seen: OpView, sig: Signature, plan: StagePlan) -> Mapping[str, int]:
    """What is inside an operator has local shapes already."""
    if op.body is not None:
        return {}
    strategy = plan.strategies.get(op.name) or default_strategy(seen, sig, plan.settings.device_num)
    return cuts_of(seen, sig, strategy, plan.settings.device_num)
