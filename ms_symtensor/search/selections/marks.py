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

from ms_symtensor.program.program import Role
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import Recompute
from ms_symtensor.search.selections.forward_block import ForwardBlock

Item = tuple[Literal["needed", "made", "saved"], int]
"""A variable of the problem: of a tensor (needed, saved) or of a node (made), by number."""


@dataclass(frozen=True)
class Marks:
    """What can be said of a block: the nodes that are `makeable` again, the tensors that are `savable`, not kept then, and what
    follows from a choice `further` to what always does. `told`: of every node that carries a mark, the operators whose marks
    decide about it.
    """

    of: ForwardBlock
    makeable: Sequence[int]
    savable: Sequence[int]
    further: Sequence[tuple[Item, Item]]
    told: Mapping[int, Sequence[str]]

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
        kept: dict[str, None] = {}
        moved: dict[str, bool] = {}
        for number, names in self.told.items():
            node, stays = self.of.nodes[number], ("made", number) not in items
            if not any(("needed", t) in items for t in node.outputs):
                continue
            if node.role is not Role.WORK:
                moved |= {name: moved.get(name, True) and stays for name in names}
            elif stays:
                kept |= dict.fromkeys(names)
        return Recompute(True, tuple(kept), tuple(name for name, stays in moved.items() if stays))


def marks(of: ForwardBlock) -> Marks:
    """What can be said of block `of`."""
    makeable = [number for number in range(len(of.nodes)) if number not in of.fixed]
    savable = [t for number in makeable for t in of.nodes[number].outputs]
    forced: list[tuple[Item, Item]] = [(("needed", t), ("made", of.maker[t])) for t in savable if not _is_chosen(of, t)]
    told = _told(of, makeable)
    around: dict[str, list[int]] = {}
    for number, names in told.items():
        if of.nodes[number].role is not Role.WORK:
            for name in names:
                around.setdefault(name, []).append(number)
    return Marks(of, makeable, savable, [*forced, *_together(around)], told)


def _together(marked: Mapping[str, Sequence[int]]) -> Iterator[tuple[Item, Item]]:
    """Of nodes with the same mark each is recomputed if another one is."""
    for alike in marked.values():
        yield from ((("made", a), ("made", b)) for a in alike for b in alike if a != b)


def _is_chosen(of: ForwardBlock, tensor: int) -> bool:
    """Whether a plan may keep `tensor`."""
    maker = of.maker[tensor]
    return of.is_named(maker) and not of.is_view(maker)


def _told(of: ForwardBlock, makeable: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Of each of the nodes `makeable` that carries a mark, the operators whose marks decide about it: its own, and of a move
    those that read the same moved tensor.
    """
    readers: dict[int, list[int]] = {}
    for number, node in enumerate(of.nodes):
        for tensor in node.inputs:
            readers.setdefault(tensor, []).append(number)
    found = {}
    for number in (n for n in makeable if of.is_named(n) and not of.is_view(n)):
        node = of.nodes[number]
        beside = {n for t in node.outputs for n in readers.get(t, ())} if node.role is Role.MOVE else ()
        names = dict.fromkeys((node.op, *(of.nodes[n].op for n in sorted(beside))))
        ops = (of.graph.op_by_name.get(name) for name in names)
        found[number] = tuple(name_in_block(op) for op in ops if op is not None and is_selectable(op))
    return found
