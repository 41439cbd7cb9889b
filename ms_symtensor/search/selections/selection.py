"""What of a block is worth computing again: the front of seconds against bytes kept until the backward pass.

For a price λ of a byte every tensor of the block that the backward pass needs is either kept or made again:

    min  Σ_v c_v X_v + λ Σ_t b_t (N_t - Z_t)        N: needed, X: made again, Z: needed and made again, so not kept
    Z_t <= N_t, Z_t <= X_v(t);   X_v <= N_u for every u that v reads;   N_t = 1 where a gradient reads t

over the nodes v (seconds c) and tensors t (bytes b) of the forward program. Every constraint says that one choice implies
another, so this is a closure of least weight, solved exactly by a minimum cut (`closure`). The corners of the lower hull of
the front are found by solving at the slope between two known ones, until no new one is found (Eisner and Severance 1976)
or those on both sides are close (FINEST).
What MindSpore marks together (the collectives around one operator) is computed again together, if any part of it is. What is
moved before a Reshape carries the mark of the Reshape; one made on the fly (`x.reshape`) has none.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.step import forward_s
from ms_symtensor.program.liveness import VIEWS
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.program import Node, Phase, Program, Role
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.selections.closure import PICOSECONDS, least_closure
from ms_symtensor.tensor.graph import Graph

FINEST = 0.01
"""empirical: corners of the front that differ by less than this share of a block's bytes are not told apart: a stage mixes two
of them block by block anyway. The front of a block with experts has fifty, half of them that near."""

_Item = tuple[Literal["needed", "made", "saved"], int]
"""A variable of the problem: of a tensor (needed, saved) or of a node (made), by number."""


@dataclass(frozen=True)
class Selected:
    """A point of the front: what is computed again (None: nothing), the seconds of that, the bytes that a block keeps then."""

    recompute: Recompute | None
    again_s: float
    kept_B: int


@dataclass(frozen=True)
class _Choice:
    """A solution: picoseconds, bytes, and the nodes that are made again and the tensors that are needed."""

    again: int
    kept_B: int
    made: frozenset[int]
    needed: frozenset[int]


@dataclass(frozen=True)
class Front:
    """The `corners` of a block's front, from nothing to everything; and what lies `between` two of them, each a corner and one
    tensor more that is made again.
    """

    corners: tuple[Selected, ...]
    between: tuple[Selected, ...]


def front(
    graph: Graph,
    plan: StagePlan,
    program: Program,
    block: str,
    cluster: Cluster,
    known: Meanings,
) -> Front | None:
    """The front of `block` in `program`, which is `partition(graph, plan)` with nothing recomputed. `known`: what the operators
    mean. None where an operator of the block was written in pieces.
    """
    if any(op.body is not None for op in graph.ops if op.block == block):
        return None
    of = _Block(graph, plan, program, block, cluster, known)
    nothing = Selected(None, 0.0, sum(of.size_B[t] for t in {of.root(t) for t in of.wanted}))
    corners = of.corners()
    return Front(tuple(hull([nothing, *map(of.selected, corners)])), tuple(map(of.selected, of.between(corners))))


def hull(points: Sequence[Selected]) -> list[Selected]:
    """Those of `points`, of which each keeps less than the one before it, between which no other one lies lower."""
    found: list[Selected] = []
    for point in points:
        if found and point.kept_B >= found[-1].kept_B:
            continue
        while len(found) > 1 and price_of_byte(found[-2], found[-1]) >= price_of_byte(found[-1], point):
            found.pop()
        found.append(point)
    return found


def price_of_byte(more: Selected, less: Selected) -> float:
    """Seconds for every byte less that is kept."""
    return (less.again_s - more.again_s) / (more.kept_B - less.kept_B)


class _Block:
    """The choices of one block."""

    def __init__(
        self,
        graph: Graph,
        plan: StagePlan,
        program: Program,
        block: str,
        cluster: Cluster,
        known: Meanings,
    ) -> None:
        self.graph = graph
        self.nodes = [
            n for n in program.nodes if n.phase is Phase.FORWARD and n.block == block and n.role is not Role.WEIGHT
        ]
        seconds = forward_s(graph, plan, program, self.nodes, cluster, known)
        self.cost = [round(s * PICOSECONDS) for s in seconds]
        self.maker = {t: i for i, n in enumerate(self.nodes) for t in n.outputs}
        weights = {t for n in program.nodes if n.role is Role.WEIGHT for t in n.outputs}
        held = program.kept | weights
        self.inputs = [[t for t in n.inputs if t not in held] for n in self.nodes]
        tensors = sorted({*self.maker, *(t for inputs in self.inputs for t in inputs)})
        self.leaving = {t for n in program.nodes if n.block != block and n.phase is Phase.FORWARD for t in n.inputs}
        gradients = {t for n in program.nodes if n.phase is Phase.BACKWARD for t in n.inputs}
        elsewhere = {t for n in program.nodes if n.phase is Phase.BACKWARD and n.block != block for t in n.inputs}
        self.wanted = [t for t in tensors if t in gradients]
        self.size_B = {t: 0 if self._is_free(t, elsewhere) else program.tensors[t].size_B for t in tensors}
        self.fixed = {i for i, n in enumerate(self.nodes) if any(t in self.leaving for t in n.outputs)}

    def _is_free(self, tensor: int, elsewhere: Collection[int]) -> bool:
        """Whether `tensor` costs this block nothing: a view that is made again whenever it is needed, or kept for others."""
        maker = self.maker.get(tensor)
        return tensor in elsewhere if maker is None else self._is_view(self.nodes[maker])

    def root(self, tensor: int) -> int:
        """The tensor that `tensor` is a view of, or itself."""
        maker = self.maker.get(tensor)
        if maker is None or not self._is_view(self.nodes[maker]) or not self.inputs[maker]:
            return tensor
        return self.root(self.inputs[maker][0])

    def _is_view(self, node: Node) -> bool:
        op = self.graph.op_by_name.get(node.op)
        return node.kind in VIEWS and op is not None and op.type == node.kind

    def _is_chosen(self, node: Node) -> bool:
        """Whether a plan may keep what `node` makes: what has no primitive of its own has no mark, either."""
        op = self.graph.op_by_name.get(node.op)
        return op is not None and is_selectable(op) and not self._is_view(node)

    # -- one price -----------------------------------------------------------------------------------------------------

    def at(self, price: tuple[int, int]) -> _Choice:
        """The best choice where a byte costs price[0] / price[1] picoseconds."""
        of_B, of_time = price
        weights: dict[_Item, int] = {("needed", t): of_B * size for t, size in self.size_B.items()}
        implies: list[tuple[_Item, _Item]] = []
        for number, node in enumerate(self.nodes):
            if number in self.fixed:
                continue
            weights["made", number] = of_time * self.cost[number]
            implies += [(("made", number), ("needed", t)) for t in self.inputs[number]]
            for t in node.outputs:
                weights["saved", t] = -of_B * self.size_B[t]
                implies += [(("saved", t), ("needed", t)), (("saved", t), ("made", number))]
                if not self._is_chosen(node):
                    implies.append((("needed", t), ("made", number)))
        found = least_closure(weights, implies, [("needed", t) for t in self.wanted])
        made = frozenset(number for what, number in found if what == "made")
        needed = frozenset(t for what, t in found if what == "needed")
        kept_B = sum(self.size_B[t] for t in needed if self.maker.get(t) not in made)
        return _Choice(sum(self.cost[number] for number in made), kept_B, made, needed)

    # -- the front -----------------------------------------------------------------------------------------------------

    def corners(self) -> list[_Choice]:
        most, least = self.at((0, 1)), self.at((1, 0))
        return [most, *self._corners_between(most, least)]

    def _corners_between(self, more: _Choice, less: _Choice) -> Iterator[_Choice]:
        """The corners behind `more` up to `less`, which keeps less; none so near to another one that they are all but it."""
        if less.kept_B >= more.kept_B:
            return
        if more.kept_B - less.kept_B < FINEST * sum(self.size_B.values()):
            yield less
            return
        price = (less.again - more.again, more.kept_B - less.kept_B)
        found = self.at((price[0], price[1]))

        def value(one: _Choice) -> int:
            return one.again * price[1] + one.kept_B * price[0]

        if value(found) < value(less):
            yield from self._corners_between(more, found)
            yield from self._corners_between(found, less)
        else:
            yield less

    def between(self, corners: Sequence[_Choice]) -> Sequence[_Choice]:
        """Every corner with one tensor more that is made again in the next one, and what that needs."""
        found: dict[tuple[int, int], _Choice] = {}
        for more, less in pairwise(corners):
            for tensor in sorted(self._saved(less) - self._saved(more)):
                one = self._made_too(more, tensor)
                if more.again < one.again < less.again and less.kept_B < one.kept_B < more.kept_B:
                    found.setdefault((one.again, one.kept_B), one)
        return list(found.values())

    def _saved(self, one: _Choice) -> set[int]:
        return {t for t in one.needed if self.maker.get(t) in one.made}

    def _made_too(self, one: _Choice, tensor: int) -> _Choice:
        """`one` with `tensor` made again too."""
        made, needed = set(one.made), set(one.needed)
        todo = [self.maker[tensor]]
        while todo:
            number = todo.pop()
            if number in made:
                continue
            made.add(number)
            needed |= {*self.inputs[number]}
            makers = (self.maker.get(t) for t in self.inputs[number])
            todo += [n for n in makers if n is not None and n not in self.fixed and not self._is_chosen(self.nodes[n])]
        kept_B = sum(self.size_B[t] for t in needed if self.maker.get(t) not in made)
        return _Choice(sum(self.cost[number] for number in made), kept_B, frozenset(made), frozenset(needed))

    # -- as MindSpore marks it -----------------------------------------------------------------------------------------

    def selected(self, chosen: _Choice) -> Selected:
        return Selected(self.recompute(chosen), chosen.again / PICOSECONDS, chosen.kept_B)

    def recompute(self, chosen: _Choice) -> Recompute:
        """The marks of `chosen`: what is needed and not made again is kept, moves to several readers for all of them."""
        kept: dict[str, None] = {}
        moved: dict[str, bool] = {}
        for number, node in enumerate(self.nodes):
            if number in self.fixed or not self._is_chosen(node) or not chosen.needed & {*node.outputs}:
                continue
            stays = number not in chosen.made
            if node.role is Role.WORK:
                if stays:
                    kept[name_in_block(self.graph.op_by_name[node.op])] = None
                continue
            for name in self._moved_for(node):
                moved[name] = moved.get(name, True) and stays
        return Recompute(True, tuple(kept), tuple(name for name, stays in moved.items() if stays))

    def _moved_for(self, node: Node) -> Iterator[str]:
        """The operators whose marks decide about `node`: its own, and those that read the same moved tensor."""
        names = {node.op: None}
        if node.role is Role.MOVE:
            names |= {other.op: None for other in self.nodes if not {*node.outputs}.isdisjoint(other.inputs)}
        for name in names:
            op = self.graph.op_by_name.get(name)
            if op is not None and is_selectable(op):
                yield name_in_block(op)
