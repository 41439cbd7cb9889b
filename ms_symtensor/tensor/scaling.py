"""A network at any batch, from its graphs at two: what depends on the batch is in proportion to it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Scaling:
    """The graphs of a network at `batch` samples and at `other_batch`, fewer or more."""

    graph: Graph
    batch: int
    other: Graph
    other_batch: int

    def at(self, batch: int) -> Graph:
        """The graph at `batch` samples: every number that differs between both is in proportion to them.

        InputError, with the operator, where one is not, or where the two are not the same network.
        """
        if batch == self.batch:
            return self.graph
        if [op.type for op in self.graph.ops] != [op.type for op in self.other.ops]:
            raise InputError(f"{self._both} it has other operators, not the same ones of other sizes")
        found = {f.name: self._scaled(getattr(self.graph, f.name), getattr(self.other, f.name), f.name, batch)
                 for f in fields(Graph) if f.name != "ops"}  # fmt: skip
        ops = tuple(self._scaled(a, b, a.name, batch) for a, b in zip(self.graph.ops, self.other.ops, strict=True))
        return Graph(ops=ops, **found)

    @property
    def _both(self) -> str:
        return f"at {self.batch} and {self.other_batch} samples"

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """What operators of `other` are called in `graph`: MindSpore 2.8 and 2.9 do not always give functions the same scope."""
        return {other.name: one.name for one, other in zip(self.graph.ops, self.other.ops, strict=True)}

    def _scaled(self, one: Any, other: Any, where: str, batch: int) -> Any:
        if one == other or (isinstance(other, str) and self._names.get(other) == one):
            return one
        if type(one) is type(other):
            if isinstance(one, int) and one * self.other_batch == other * self.batch and one * batch % self.batch == 0:
                return one * batch // self.batch
            if isinstance(one, tuple) and len(one) == len(other):
                return tuple(self._scaled(a, b, where, batch) for a, b in zip(one, other, strict=True))
            if is_dataclass(one) and not isinstance(one, type):
                own = ((f.name, getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.compare)
                return replace(one, **{name: self._scaled(a, b, where, batch) for name, a, b in own})
        raise InputError(f"{self._both} {where} has {one} and {other}: neither the same nor in proportion")
