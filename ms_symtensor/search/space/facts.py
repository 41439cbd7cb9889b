"""What a graph tells of the numbers that a plan for it may have."""

from collections.abc import Collection, Mapping

from ms_symtensor.ops.instead import why_on_the_fly, why_undistributed
from ms_symtensor.program.meanings import Meanings, cut_by_default, meanings
from ms_symtensor.program.one_stage import why_no_accumulation, why_one_stage
from ms_symtensor.search.constraints.arithmetic.facts import Cuttable, Facts
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.constraints.roles import (
    attended,
    batch_size,
    expert_products,
    major_products,
    own_rows,
    weight_dims,
)
from ms_symtensor.search.folded.alternating import longest
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.places import places
from ms_symtensor.search.space.undivided import why_one_run, why_whole
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name


def facts_of(graph: Graph, request: Request, parts: int = 1, whole: str = "") -> Facts:
    """The numbers of `request` and of its network, of whose step `graph` is one of so many equal `parts`.

    In `graph` periods of blocks are one (`folded.alternating`). `whole`: why it has neither stages nor micro-batches, where
    that is known; else the graph tells.
    """
    known = meanings(graph, request.rules)
    depths = places(graph, fold(graph)).depths
    attention = {name: attended(graph, graph.op_by_name[name], sig) for name, (_, sig) in known.items()}
    return Facts(
        device_num=request.device_num,
        max_devices=request.cluster.max_ranks,
        model=request.model or graph.name,
        batch=request.global_batch_size,
        blocks=sum(depths[1:-1]),
        together=longest(graph),
        samples=batch_size(graph, known) * parts or None,
        weights=_cuttable(graph, known, {name: weight_dims(known[name][1]) for name in major_products(graph, known)}),
        experts=_cuttable(graph, known, {name: own_rows(known[name][1]) for name in expert_products(graph, known)}),
        attention=_cuttable(graph, known, {name: dims[1:] for name, dims in attention.items() if dims is not None}),
        whole=whole or why_whole(graph),
        one_stage=why_one_stage(graph),
        no_accumulation=why_no_accumulation(graph),
        one_run=why_one_run(graph, depths),
    )


def _cuttable(graph: Graph, known: Meanings, dims: Mapping[str, Collection[str]]) -> tuple[Cuttable, ...]:
    """What may be cut of these `dims` of operators, by name; of operators alike once."""
    by_default = cut_by_default(graph)
    found: dict[tuple, Cuttable] = {}
    for name, wanted in dims.items():
        op, sig = graph.op_by_name[name], known[name][1]
        sizes = {dim: sig.sizes[dim] for dim in sig.cuttable if dim in wanted}
        why = ""
        if name in by_default:
            sizes = {dim: size for dim, size in sizes.items() if dim == sig.leading}
            why = why_on_the_fly(op.type) if op.is_on_the_fly else ""
        if not sig.is_distributed:
            why = why_undistributed(op.type)
        called = f"{short_name(op)} ({op.type})"
        found.setdefault((op.type, *sizes.items()), Cuttable(called, sizes, f"{called}: {why}" if why else ""))
    return tuple(found.values())
