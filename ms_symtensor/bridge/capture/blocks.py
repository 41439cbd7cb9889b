"""Which operator belongs to which instance of a repeated block.

An operator whose primitive a cell owns, or that reads a weight of a cell, is where that cell is. All others (`x + y`, a Cast,
most functions of `mint`) are known by their scope only, and MindSpore gives all operators that one piece of Python code makes the
scope of the first: that may be another block, another list of blocks, or none. So where these are follows from what lies around
them in the first block of a list, and in the others from the first, which they are walked through in step with.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.tensor.graph import OpOutput, ParameterRef, flat
from ms_symtensor.tensor.names import scope_of

Blocks = dict[str, str | None]
Around = dict[str, frozenset[str | None]]
"""Of operators: the blocks (None: none) of the nearest ones before or after them whose place is certain."""


def block_of_path(path: Sequence[str]) -> str | None:
    """`"layers.3"` for anything inside `layers[3]`: the first numbered child on the way is a repeated block."""
    for depth, part in enumerate(path):
        if part.isdigit() and depth:
            return ".".join(path[: depth + 1])
    return None


def block_of_ops(
    nodes: Sequence[Node], owners: Mapping[str, Sequence[str]], homes: Mapping[str, Sequence[str]]
) -> Blocks:
    """The block of every node, by its name; `owners` tells the path of the cell that owns its primitive, or (), `homes` that of
    every weight, by its name.
    """
    flow = _Flow(nodes)
    certain = dict(_certain(nodes, owners, homes))
    before = _nearest(nodes, flow.makers, certain)
    after = _nearest(nodes[::-1], flow.readers, certain)
    found: Blocks = {name: block for name, block in certain.items() if block is not None}
    for names in _lists(found):
        first = names[0]
        found |= dict.fromkeys(_core(nodes, first, certain, before, after), first)
        for other in names[1:]:
            _follow(flow, first, other, certain, found)
        found |= _enclosed(flow, names, certain, found)
        closing = [n.name for n in nodes if n.name not in certain and n.name not in found
                   and first in before[n.name] and not after[n.name].isdisjoint(names[1:2])]  # fmt: skip
        found |= dict.fromkeys(closing, first)
        for other in names[1:]:
            _follow(flow, first, other, certain, found)
    single = {_split(names[0])[0]: names[0] for names in _lists(found) if len(names) == 1}
    known = {_split(block)[0] for block in found.values() if block is not None}
    for node in nodes:
        if node.name not in certain and node.name not in found:
            inside = [block for block in before[node.name] & after[node.name] if block is not None]
            scope = _scope(node)
            if scope is not None and not inside:  # believed where nothing speaks against it
                container = _split(scope)[0]
                only = single.get(container)
                inside = [scope] if container not in known else [only] if only and only in before[node.name] else []
            found[node.name] = min(inside, key=_split, default=None)
    blocks = {node.name: found.get(node.name) for node in nodes}
    for name in _shared(nodes, blocks, certain):
        blocks[name] = None
    return blocks


def in_block_order(nodes: Sequence[Node], blocks: Mapping[str, str | None]) -> list[Node]:
    """`nodes` with those of a block behind all that the block needs, and otherwise as they are.

    MindSpore lists a decoder that reads an encoder's result later than anything else before that encoder. Blocks that need each
    other stay as they are.
    """
    needs: dict[str, dict[str, None]] = {}
    above: dict[str, dict[str, None]] = {}  # of an operator outside the blocks: the last ones that lead to it
    for node in nodes:
        block, reached = blocks[node.name], dict[str, None]()
        for source in flat(node.inputs):
            if isinstance(source, OpOutput):
                maker = blocks[source.op]
                reached.update(above[source.op] if maker is None else {maker: None})
        if block is None:
            above[node.name] = reached
        else:
            reached.pop(block, None)
            needs[block] = needs.get(block, {}) | reached
    order: dict[str, int] = {}
    try:
        for block in needs:
            for name in TopologicalSorter(_needed(block, needs, order)).static_order():
                order[name] = len(order)
    except CycleError:
        return list(nodes)
    if list(order) == list(needs):
        return list(nodes)

    def rank(node: Node) -> int:
        block = blocks[node.name]
        return max((order[one] for one in above[node.name]), default=-1) if block is None else order[block]

    return sorted(nodes, key=rank)


def _needed(block: str, needs: Mapping[str, Iterable[str]], known: Collection[str]) -> dict[str, list[str]]:
    """All blocks that `block` needs, but for those that are `known`, each with what it needs of them."""
    found: dict[str, list[str]] = {}
    waiting = [] if block in known else [block]
    while waiting:
        name = waiting.pop()
        found[name] = [one for one in needs[name] if one not in known]
        waiting += [one for one in found[name] if one not in found]
    return found


class _Flow:
    """Who makes what an operator reads, by place, and who reads what it makes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.node = {node.name: node for node in nodes}
        self.sources = {
            node.name: [s.op if isinstance(s, OpOutput) else None for s in flat(node.inputs)] for node in nodes
        }
        self.makers = {name: [maker for maker in makers if maker] for name, makers in self.sources.items()}
        self.readers: dict[str, list[str]] = {node.name: [] for node in nodes}
        for name, makers in self.makers.items():
            for maker in makers:
                self.readers[maker].append(name)

    def places(self, reader: str, maker: str) -> list[int]:
        """As which inputs `reader` reads `maker`."""
        return [place for place, source in enumerate(self.sources[reader]) if source == maker]


def _certain(
    nodes: Sequence[Node], owners: Mapping[str, Sequence[str]], homes: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str | None]]:
    """The operators whose place is certain, with their block."""
    for node in nodes:
        weights = [homes[source.name] for source in flat(node.inputs) if isinstance(source, ParameterRef)]
        if owners[node.name]:
            yield node.name, block_of_path(owners[node.name])
        elif weights:
            yield node.name, next(filter(None, map(block_of_path, weights)), None)


def _nearest(
    nodes: Iterable[Node], neighbours: Mapping[str, Sequence[str]], certain: Mapping[str, str | None]
) -> Around:
    """The blocks of the nearest certain ones among the `neighbours` of every one of `nodes`, each after its neighbours."""
    found: Around = {}
    for node in nodes:
        sets = (frozenset([certain[n]]) if n in certain else found[n] for n in neighbours[node.name])
        found[node.name] = frozenset().union(*sets)
    return found


def _lists(blocks: Mapping[str, str | None]) -> list[list[str]]:
    """The blocks of every list, in its order."""
    lists: dict[str, set[str]] = {}
    for block in blocks.values():
        if block is not None:
            lists.setdefault(_split(block)[0], set()).add(block)
    return [sorted(names, key=_split) for names in lists.values()]


def _core(
    nodes: Sequence[Node], first: str, certain: Mapping[str, str | None], before: Around, after: Around
) -> Iterator[str]:
    """The operators of unknown place between those of block `first`, and those that lead to them from outside, if their scope is
    in a list of blocks.
    """
    for node in nodes:
        if node.name in certain or first not in after[node.name]:
            continue
        there, scope = before[node.name], _scope(node)
        left = {_split(block)[0] for block in there if block is not None}
        if first in there or (scope is not None and _split(scope)[0] not in left - {_split(first)[0]}):
            yield node.name


def _follow(flow: _Flow, first: str, other: str, certain: Mapping[str, str | None], found: Blocks) -> None:
    """Walk block `other` in step with block `first`, and note in `found` which operators of unknown place it has."""
    pairs = dict.fromkeys(_alike(flow, first, other, certain))
    waiting = list(pairs)
    for mine, its in waiting:  # grows on the way
        for here, there in _steps(flow, mine, its):
            if (
                found.get(here) == first
                and here not in certain
                and there not in certain
                and found.get(there) in (None, other)
                and flow.node[here].type == flow.node[there].type
                and (here, there) not in pairs
            ):
                found[there] = other
                pairs[here, there] = None
                waiting.append((here, there))


def _enclosed(flow: _Flow, names: Collection[str], certain: Collection[str], found: Blocks) -> Blocks:
    """The operators of unknown place that lead into one of the blocks `names` alone, and read what is made there, or what is read
    there too: a mean of the block's input, beside which the input goes its own way.
    """
    leads: dict[str, str] = {}
    for name in reversed(flow.node):
        into = {found.get(reader) or leads.get(reader) for reader in flow.readers[name]}
        if name not in certain and name not in found and len(into) == 1 and (block := into.pop()) in names and block:
            leads[name] = block
    inside: Blocks = {}
    for name in filter(leads.__contains__, flow.node):
        near = {found.get(other) or inside.get(other) for m in flow.makers[name] for other in (m, *flow.readers[m])}
        if leads[name] in near:
            inside[name] = leads[name]
    return inside


def _alike(flow: _Flow, first: str, other: str, certain: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """The operators of two blocks whose places are certain, in pairs."""
    ours, theirs = ([name for name in flow.node if certain.get(name) == block] for block in (first, other))
    for mine, its in zip(ours, theirs, strict=False):
        if flow.node[mine].type != flow.node[its].type:
            return
        yield mine, its


def _steps(flow: _Flow, mine: str, its: str) -> Iterator[tuple[str, str]]:
    """What makes and what reads them, in pairs."""
    yield from ((a, b) for a, b in zip(flow.sources[mine], flow.sources[its], strict=False) if a and b)
    for reader in flow.readers[mine]:
        for other in flow.readers[its]:
            if flow.places(reader, mine) == flow.places(other, its):
                yield reader, other


def _shared(nodes: Sequence[Node], blocks: Mapping[str, str | None], certain: Collection[str]) -> set[str]:
    """Operators in a block that need nothing of any block and are read by others: MindSpore has merged what all of these do."""
    free, found = set[str](), set[str]()
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        makers = [source.op for source in flat(node.inputs) if isinstance(source, OpOutput)]
        for maker in makers:
            readers.setdefault(maker, []).append(node)
        if node.name not in certain and all(blocks[m] is None or m in free for m in makers):
            free.add(node.name)
    for node in reversed(nodes):
        if node.name in free and blocks[node.name] is not None:
            others = (blocks[r.name] != blocks[node.name] or r.name in found for r in readers.get(node.name, ()))
            found |= {node.name} if any(others) else set()
    return found


def _scope(node: Node) -> str | None:
    """The block that the scope of `node` names."""
    return block_of_path(scope_of(node.name))


def _split(block: str) -> tuple[str, int]:
    container, _, index = block.rpartition(".")
    return container, int(index)
