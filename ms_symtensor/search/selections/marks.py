"""How MindSpore is told what of a block is recomputed, and what can be said so.

The block is recomputed (`cell.recompute()`) but for operators that are marked not to be. What has no primitive of its own (a
Cast) carries no mark and is always recomputed then, and so are views. What MindSpore marks together (the collectives around one
operator) is recomputed together, if any part of it is. What is moved before a Reshape carries the mark of the Reshape; a
functional one (`x.reshape`) has none.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ms_symtensor.program.program import Node, Role
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import Recompute
from ms_symtensor.search.selections.forward_block import ForwardBlock

Item = tuple[Literal["needed", "made", "saved"], int]
"""A variable of the problem: of a tensor (needed, saved) or of a node (made), by number."""


@dataclass(frozen=True)
class Marks:
    """What can be said of a block: the nodes that are `makeable` again, the tensors that are `savable`, not kept then, and what
    follows from a choice `further` to what always does.
    """

    of: ForwardBlock
    makeable: Sequence[int]
    savable: Sequence[int]
    further: Sequence[tuple[Item, Item]]

    @cached_property
    def implies(self) -> Sequence[tuple[Item, Item]]:
        """All that follows from one choice."""
        return [*self._implied(), *self.further]

    @cached_property
    def follows(self) -> Mapping[Item, set[Item]]:
        """What follows from every choice, as a mapping."""
        found: dict[Item, set[Item]] = defaultdict(set)
        for item, other in self.implies:
            found[item].add(other)
        return found

    def _implied(self) -> Iterator[tuple[Item, Item]]:
        for number in self.makeable:
            yield from ((("made", number), ("needed", t)) for t in self.of.inputs[number])
        for t in self.savable:
            yield ("saved", t), ("needed", t)
            yield ("saved", t), ("made", self.of.maker[t])

    def recompute(self, items: Collection[Item]) -> Recompute:
        """What is needed and not recomputed is kept, moves to several readers for all of them."""
        of = self.of
        kept: dict[str, None] = {}
        moved: dict[str, bool] = {}
        for number, node in enumerate(of.nodes):
            needed = any(("needed", t) in items for t in node.outputs)
            if number in of.fixed or not of.is_named(number) or of.is_view(number) or not needed:
                continue
            stays = ("made", number) not in items
            if node.role is Role.WORK:
                if stays:
                    kept[name_in_block(of.graph.op_by_name[node.op])] = None
                continue
            for name in _moved_for(of, node):
                moved[name] = moved.get(name, True) and stays
        return Recompute(True, tuple(kept), tuple(name for name, stays in moved.items() if stays))


def marks(of: ForwardBlock) -> Marks:
    """What can be said of block `of`."""
    makeable = [number for number in range(len(of.nodes)) if number not in of.fixed]
    savable = [t for number in makeable for t in of.nodes[number].outputs]
    forced: list[tuple[Item, Item]] = [(("needed", t), ("made", of.maker[t])) for t in savable if not _is_chosen(of, t)]
    around: dict[str, list[int]] = {}
    for number in makeable:
        if of.nodes[number].role is not Role.WORK and of.is_named(number) and not of.is_view(number):
            for name in _moved_for(of, of.nodes[number]):
                around.setdefault(name, []).append(number)
    return Marks(of, makeable, savable, [*forced, *_together(around)])


def _together(marked: Mapping[str, Sequence[int]]) -> Iterator[tuple[Item, Item]]:
    """Of nodes with the same mark each is recomputed if another one is."""
    for alike in marked.values():
        yield from ((("made", a), ("made", b)) for a in alike for b in alike if a != b)


def _is_chosen(of: ForwardBlock, tensor: int) -> bool:
    """Whether a plan may keep `tensor`."""
    maker = of.maker[tensor]
    return of.is_named(maker) and not of.is_view(maker)


def _moved_for(of: ForwardBlock, node: Node) -> Iterator[str]:
    """The operators whose marks decide about `node`: its own, and those that read the same moved tensor."""
    names = {node.op: None}
    if node.role is Role.MOVE:
        names |= {other.op: None for other in of.nodes if not {*node.outputs}.isdisjoint(other.inputs)}
    for name in names:
        op = of.graph.op_by_name.get(name)
        if op is not None and is_selectable(op):
            yield name_in_block(op)
