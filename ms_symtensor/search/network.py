"""A network whose depth and batch can be chosen: what a search over pipeline stages and micro-batches needs to know."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ms_symtensor.search.folding import fold, shorten
from ms_symtensor.search.outer import SHORT
from ms_symtensor.search.places import places
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Network:
    """`graph_at(batch)`: the whole network at so many samples; `short_at(batch)`: with SHORT blocks of every kind."""

    graph_at: Callable[[int], Graph]
    short_at: Callable[[int], Graph]
    depths: tuple[int, ...]
    _known: dict[int, Graph] = field(default_factory=dict)

    def short(self, batch: int) -> Graph:
        """`short_at(batch)`, made once."""
        if batch not in self._known:
            self._known[batch] = self.short_at(batch)
        return self._known[batch]


def network(graph: Graph, graph_at: Callable[[int, int | None], Graph]) -> Network:
    """The network of `graph`; `graph_at(batch, layers)` makes it anew for any batch, with so many of its first blocks or all.

    The first blocks are those of the first kind, then of the next.
    """
    depths = places(graph, fold(graph)).depths
    first = sum(depths[1:-2]) + min(SHORT, depths[-2]) if len(depths) > 2 else None

    def short_at(batch: int) -> Graph:
        few = graph_at(batch, first)
        return shorten(few, fold(few), SHORT)

    return Network(lambda batch: graph_at(batch, None), short_at, depths)
