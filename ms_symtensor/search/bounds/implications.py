"""What of blocks may be made again, tensor by tensor, and what implies what: the items of `remaking`."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.given_layouts import Item
from ms_symtensor.search.bounds.reads import Reads
from ms_symtensor.search.folded.places import Counts
from ms_symtensor.search.tables.copies import Copies, CopyTables, Fetch, Moved
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tensor_terms import JOINT_READERS, slices_B
from ms_symtensor.search.tables.tensors import End, layouts_at
from ms_symtensor.search.tables.variables import transparent_s
from ms_symtensor.tensor.graph import OpOutput

Array = NDArray[np.float64]
Implication = tuple[Item, Item]


@dataclass(frozen=True)
class Needed:
    """A tensor of variable `number` that no gradient reads: its bytes, a table over `scope`, nothing in layouts in which one
    does; whether its block may make it again, and whether implications join it to the operator that does, which has its own
    table.
    """

    number: int
    scope: tuple[int, ...]
    size_B: Array
    counts: Counts
    is_made: bool
    is_apart: bool


@dataclass(frozen=True)
class Cast:
    """A Cast of the output of variable `number`, of which another one is made and that no gradient reads: bytes, and seconds of
    making it again, [members, candidates].
    """

    number: int
    size_B: Array
    again_s: Array
    counts: Counts


@dataclass(frozen=True)
class Implications:
    """The items of blocks: operators that are `made` again, with how often every place has each, and whose partial sums are
    `summed` again by themselves; `copies` of tensors, those by number that are moved together with a sum in some layouts
    (`joint`), what is `needed` of these, `casts`, and what is fetched. `crossing`: the implications between tables.
    """

    made: Mapping[int, Counts]
    copies: Sequence[Copies]
    moved: Sequence[tuple[int, Moved]]
    joint: Set[int]
    needed: Sequence[Needed]
    casts: Sequence[Cast]
    fetches: Sequence[tuple[Fetch, Counts]]
    summed: Mapping[int, Counts]
    crossing: Sequence[Implication]

    def scope(self, item: Item) -> tuple[int, ...]:
        """The variables that the table of `item` depends on, of an operator that itself."""
        kind, number = item
        if kind in ("made", "summed"):
            return (number,)
        if kind in ("cast", "recast"):
            return (self.casts[number].number,)
        if kind in ("needed", "saved"):
            return self.needed[number].scope
        if kind in ("fetched", "brought"):
            return self.fetches[number][0].scope
        return self.copies[self.moved[number][0] if kind in ("moved", "joint") else number].scope

    @cached_property
    def moved_again(self) -> Sequence["Again"]:
        """What may be moved again: where that does not go with a sum, and where it does."""
        found: list[Again] = []
        for number, (place, one) in enumerate(self.moved):
            copies = self.copies[place]
            if one.summing is None or number not in self.joint:
                found.append(Again(("moved", number), copies, one.again_s, one.size_B))
                continue
            _, there = one.summing
            for kind, without in (("moved", there), ("joint", ~there)):
                again_s, size_B = (np.where(without, 0.0, table) for table in (one.again_s, one.size_B))
                found.append(Again((kind, number), copies, again_s, size_B))
        return found


class Again(NamedTuple):
    """An item that moves some of `copies` again: seconds and bytes, tables over their scope."""

    item: Item
    copies: Copies
    again_s: Array
    size_B: Array


def implications(of: Problem) -> Implications:
    """Those of `of`."""
    return _Relating(of).found()


@dataclass
class _Relating:
    """Finds the implications between tables that stand equally often at all places."""

    of: Problem
    _needed: list[Needed] = field(default_factory=list)
    _number: dict[tuple[End, str, Counts], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known, blocks = self.of.known, {name for names in self.of.places.kinds for name in names}
        again = sorted({known.index[name] for name in self.of.again if name in known.index})
        self._made = {
            number: self.of.places.counts(dict.fromkeys(known.items[number].members, 1))
            for number in again
            if known.items[number].op.block in blocks
        }
        self._copies, self._reads = _copies(self.of), Reads(self.of)

    def found(self) -> Implications:
        casts, fetches, summed = self._casts(), list[tuple[Fetch, Counts]](), dict[int, Counts]()
        crossing, joint, moved = list[Implication](), set[int](), list[tuple[int, Moved]]()
        for place, one in enumerate(self._copies):
            root = one.origin.root
            if one.unmoved_B is not None and self._made[root[0]] == one.counts:
                crossing.append((("unmoved", place), ("made", root[0])))
            users: list[Item] = []
            for copy in one.moved:
                number = len(moved)
                moved.append((place, copy))
                users.append(("moved", number))
                if copy.summing is not None and self._made.get(copy.summing[0]) == one.counts:
                    joint.add(number)
                    users.append(("joint", number))
                    crossing.append((("joint", number), ("summed", copy.summing[0])))
                    summed[copy.summing[0]] = one.counts
            makes = casts.get((root, one.made_dtype, one.counts)) if one.origin.is_near else None
            reads = casts.get((root, one.dtype, one.counts))
            for fetch in one.fetches:
                if self._made.get(fetch.reader) == one.counts:
                    crossing.append((("made", fetch.reader), ("fetched", len(fetches))))
                    users.append(("brought", len(fetches)))
                    again_s = fetch.moves_s + (fetch.cast_s if makes is None else 0.0)
                    fetches.append((replace(fetch, moves_s=again_s), one.counts))
            if (cast := reads if makes is None else makes) is not None:
                crossing += [(user, ("cast", cast)) for user in users]
            users = users if makes is None else [("recast", makes)]
            if users and (needed := self._needed_by(one)) is not None:
                crossing += [(user, ("needed", needed)) for user in users]
        crossing += [(("made", number), ("summed", number)) for number in summed]
        crossing += [(("saved", place), ("made", one.number)) for place, one in enumerate(self._needed) if one.is_apart]
        return Implications(
            self._made,
            self._copies,
            moved,
            joint,
            self._needed,
            [self._cast(*key) for key in casts],
            fetches,
            summed,
            list(dict.fromkeys(crossing)),
        )

    def _casts(self) -> dict[tuple[End, str, Counts], int]:
        """The Casts that others read, and no gradient does, each with a number."""
        found: dict[tuple[End, str, Counts], int] = {}
        for one in self._copies:
            root, is_there = one.origin.root, one.origin.cast_of is not None and not one.origin.is_near
            is_unread = (root, one.dtype) not in self._reads.anywhere
            if is_there and is_unread and self._made.get(root[0]) == one.counts:
                found.setdefault((root, one.dtype, one.counts), len(found))
        return found

    def _cast(self, root: End, dtype: str, counts: Counts) -> Cast:
        known, (number, _, index) = self.of.known, root
        kind = known.items[number].op.outputs[index]
        power = known.power_of(OpOutput(known.items[number].op.name, index))
        again_s = transparent_s(known.pricer, layouts_at(known, root, kind.shape), kind.dtype, dtype, power)
        return Cast(number, self._size_B(root, dtype), again_s, counts)

    def _needed_by(self, one: Copies) -> int | None:
        """The number of what `one` is made of, where that is known."""
        root, output = one.origin.root, (one.origin.root, one.dtype)
        is_read = output in self._reads.anywhere and (one.unread_B is None or output in self._reads.elsewhere)
        is_known = root[0] >= 0 and one.origin.is_near and not is_read
        if not is_known or self._made.get(root[0], one.counts) != one.counts:
            return None
        key = (*output, one.counts)
        if key not in self._number:
            self._number[key] = len(self._needed)
            self._needed.append(self._needed_of(one))
        return self._number[key]

    def _needed_of(self, one: Copies) -> Needed:
        root = one.origin.root
        number, is_made = root[0], root[0] in self._made
        if (root, one.dtype) in self._reads.anywhere and one.unread_B is not None:
            return Needed(number, one.scope, one.unread_B, one.counts, is_made, is_made and one.scope != (number,))
        is_apart = is_made and any(other.number == number and not other.is_apart for other in self._needed)
        return Needed(number, (number,), self._size_B(root, one.dtype), one.counts, is_made, is_apart)

    def _size_B(self, root: End, dtype: str) -> Array:
        """Bytes of an output in element type `dtype`, [members, candidates]."""
        known, (number, _, index) = self.of.known, root
        op = known.items[number].op
        layouts = layouts_at(known, root, op.outputs[index].shape)
        return slices_B(known, layouts, dtype, known.power_of(OpOutput(op.name, index)))


def _copies(of: Problem) -> list[Copies]:
    """What gradients keep of all tensors of `of`."""
    alike = Counter(
        (tensor.origin, tensor.dtype, counts)
        for tensor, counts in of.between.items()
        for _ in range(0, len(tensor.readers), JOINT_READERS)
    )
    tables = CopyTables(of.tables)
    return [
        one
        for tensor, counts in of.between.items()
        for one in tables.every(tensor, counts, alike[tensor.origin, tensor.dtype, counts])
    ]
