"""Operators that are cut alike: those of a cell whose many products would leave the search too many layouts to join."""

from collections import Counter
from collections.abc import Collection, Mapping

from ms_symtensor.ops.placement import OpStrategy, cuts_of
from ms_symtensor.ops.signature import OpView, Signature, Unit
from ms_symtensor.search.constraints.roles import Meanings
from ms_symtensor.tensor.graph import Constant, Graph, Op, ParameterRef, Source

MANY = 4
"""The operators of a cell with more products of activations, and with no weight's, are cut alike: along the first two dims of
what they make, samples and heads, and no other (empirical: attention has two such products, a state-space layer in chunks five,
the delta rule 33; free tables of a block with either of these have 150 million entries)."""


def regions(graph: Graph, meanings: Meanings, by_default: Collection[str]) -> Mapping[str, str]:
    """The operators that are cut alike, by name, each with the scope of its cell, the outermost one that is such. Those of
    `by_default` take no strategy, so that they are not among them.
    """
    activations, weights = Counter[str](), Counter[str]()
    of_weights = set[Source]()  # what is made of weights and constants alone
    for op in graph.ops:
        sources = [s for s in graph.tensor_inputs(op) if not isinstance(s, Constant)]
        read = [s for s in sources if isinstance(s, ParameterRef) or s in of_weights]
        if len(read) == len(sources):
            of_weights.update(op.results)
        if op.name in meanings and meanings[op.name][1].unit is Unit.CUBE:
            (weights if read else activations).update(_scopes(op))
    cells = {scope for scope, number in activations.items() if number > MANY and not weights[scope]}
    if not cells:
        return {}
    found = {}
    for op in graph.ops:
        cell = next((scope for scope in _scopes(op) if scope in cells), None)
        if cell is not None and op.name in meanings and op.name not in by_default and _first(meanings[op.name][1])[1]:
            found[op.name] = cell
    return found


def held_whole(sig: Signature) -> frozenset[str]:
    """The dims that an operator of such a cell does not cut."""
    return frozenset(sig.mesh) - {*_first(sig)}


def why_held_whole(region: str, sig: Signature, slices: Mapping[str, int]) -> str:
    """Why an operator of the cell `region` cannot be cut into so many `slices`, dim by dim; empty: the cell allows it."""
    held = sorted(d for d, number in slices.items() if number > 1 and d in held_whole(sig))
    if not held:
        return ""
    first, second = _first(sig)
    dims = f"heads ({second})" if not first else f"samples ({first}) and heads ({second})"
    return f"{region.rpartition('/')[2]} is cut along {dims} alone, all its operators alike: leave {held[0]} whole"


def cuts_alike(op: OpView, sig: Signature, strategy: OpStrategy, device_num: int) -> tuple[int, int]:
    """How often `strategy` cuts samples, 0 where an operator has none to cut, and heads."""
    cuts = cuts_of(op, sig, strategy, device_num)
    samples, heads = _first(sig)
    return (cuts.get(samples, 1) if samples else 0, cuts.get(heads, 1))


def _first(sig: Signature) -> tuple[str, str]:
    """The dims of samples and of heads, empty where an operator has none to cut."""
    dims = [d if d and d in sig.mesh and d not in sig.fixed else "" for d in sig.outputs[0]]
    samples, heads = [*dims, "", ""][:2]
    return samples, heads


def _scopes(op: Op) -> list[str]:
    """The scopes of the cells around `op`, the outermost first."""
    parts = op.name.split("/")
    return ["/".join(parts[:number]) for number in range(1, len(parts))]
