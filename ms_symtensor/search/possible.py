"""What numbers and names alone rule out, before anything is searched."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches

from ms_symtensor.cluster.topology import MOST_DEVICES, Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.ops.instead import why_on_the_fly, why_undistributed
from ms_symtensor.program.meanings import Meanings, cut_by_default, meanings
from ms_symtensor.program.one_stage import why_no_accumulation, why_one_stage
from ms_symtensor.search.constraints.arithmetic.check import require_arithmetic
from ms_symtensor.search.constraints.arithmetic.conditions import forms_groups
from ms_symtensor.search.constraints.arithmetic.facts import Cuttable, Facts
from ms_symtensor.search.constraints.checked import MOST_SAMPLES, whole_number
from ms_symtensor.search.constraints.limits import FREE, LOWEST, Limits, shown
from ms_symtensor.search.constraints.operator_pins import OperatorPin
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.constraints.roles import (
    attended,
    batch_size,
    expert_products,
    major_products,
    own_rows,
    stream_norms,
    weight_dims,
)
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.places import places
from ms_symtensor.search.space.alike import regions, why_held_whole
from ms_symtensor.search.space.undivided import why_one_run, why_whole
from ms_symtensor.tensor.graph import Graph, Op
from ms_symtensor.tensor.names import short_name

SHOWN = 6
"""So many names are shown at most."""

NEEDS: Mapping[str, tuple[Callable[[Graph, Meanings], object], str]] = {
    "expert_parallel": (expert_products, "experts"),
    "context_parallel": (batch_size, "attention"),
    "sequence_parallel": (stream_norms, "norms"),
    "model_parallel": (major_products, "products with weights"),
}
"""What a degree is a cut of: how it is found in a graph, and what it is called."""


def require_possible(graph: Graph, request: Request, parts: int = 1, whole: str = "") -> None:
    """InputError for limits of `request` that no plan can keep: it names the pin, what it disagrees with, and what works.

    `graph` is one of so many equal `parts` of the step, periods of blocks being one (`folded.alternating`). `whole`: why it
    has neither stages nor micro-batches, where that is known.
    """
    if request.limits != FREE:
        require_pinnable(graph, request)
        require_arithmetic(facts_of(graph, request, parts, whole), request.limits)


def require_numbers(cluster: Cluster, device_num: int, limits: Limits, batch: int | None = None) -> None:
    """The same of what is known before the network is: its devices, and maybe the samples of its step."""
    require_devices(cluster, device_num)
    if batch is not None and whole_number("global_batch_size", batch) > MOST_SAMPLES:
        raise InputError(f"global_batch_size is {batch}: a step has at most {MOST_SAMPLES} samples")
    require_arithmetic(Facts(device_num, cluster.max_ranks, batch=batch), limits)


def require_lengths(graph: Graph, request: Request) -> None:
    """The same of what uniform layouts share with others: devices, samples and blocks."""
    of = Facts(
        request.device_num,
        request.cluster.max_ranks,
        request.model or graph.name,
        batch=request.global_batch_size,
        blocks=len(graph.blocks),
    )
    require_arithmetic(of, request.limits)


def require_devices(cluster: Cluster, device_num: int) -> None:
    """InputError for a number of devices that `cluster` does not have, no cluster has, or of which MindSpore forms no groups."""
    if device_num < 1:
        raise InputError(f"device_num is {device_num}: give a positive number of devices")
    if device_num > MOST_DEVICES:
        raise InputError(
            f"device_num is {device_num}: plans are for at most {MOST_DEVICES} devices, more than any cluster has; a plan lists"
            " its ranks one by one"
        )
    if cluster.max_ranks is not None and device_num > cluster.max_ranks:
        raise InputError(f"device_num is {device_num}, but cluster {cluster.name} has {cluster.max_ranks} devices")
    if not forms_groups(device_num):
        fewer = next(n for n in range(device_num, 0, -1) if forms_groups(n))
        raise InputError(
            f"device_num is {device_num}: MindSpore forms communication groups on 1, 2, 4 or a multiple of 8 devices: give"
            f" {fewer} or {8 * math.ceil(device_num / 8) if device_num > 4 else 4}"
        )


def require_pinnable(graph: Graph, request: Request) -> None:
    """InputError for a pin of what `graph` does not have; of no operator, or of only some of those that share a strategy."""
    limits = request.limits
    least = {name: limits.least.get(name, LOWEST[name]) for name in NEEDS}
    wanted = [name for name in NEEDS if least[name] > LOWEST[name]]
    if not wanted and not limits.operators:
        return
    known = meanings(graph, request.rules)
    for name in wanted:
        has, what = NEEDS[name]
        if not has(graph, known):
            raise InputError(f"{name} = {shown(name, least[name])}: {request.model or 'the network'} has no {what}")
    alike = regions(graph, known, cut_by_default(graph))
    classes = [members for members in fold(graph).members if known[members[0].name][1].shardable]
    for pin in limits.operators:
        _require_names(graph, classes, pin)
        for op in (members[0] for members in classes if pin.is_for(members[0])):
            cell = alike.get(op.name)
            if cell is not None and (why := why_held_whole(cell, known[op.name][1], pin.dims or {})):
                raise InputError(f"{pin}: {why}")


def _require_names(graph: Graph, classes: Sequence[Sequence[Op]], pin: OperatorPin) -> None:
    found = [[pin.is_for(op) for op in members] for members in classes]
    if not any(map(any, found)):
        names = list(dict.fromkeys(short_name(op) for members in classes for op in members))
        if any(pin.is_for(op) for op in graph.ops):
            raise InputError(
                f"{pin}: MindSpore takes no strategy for these operators, but lays them out as their inputs are"
            )
        near = get_close_matches(pin.pattern.replace("/", ".").strip("*."), names, SHOWN, 0.3) or names[:SHOWN]
        raise InputError(f"{pin}: no operator is called so; near are {', '.join(near)} (* stands for any characters)")
    for members, called in zip(classes, found, strict=True):
        if any(called) and not all(called):
            raise InputError(
                f"{pin}: {short_name(members[0])} has one strategy in all blocks that are alike: name it without its block,"
                f" *.{short_name(members[0])}"
            )


def facts_of(graph: Graph, request: Request, parts: int = 1, whole: str = "") -> Facts:
    """The numbers of `request` and of its network, of whose step `graph` is one of so many equal `parts`.

    `whole`: why it has neither stages nor micro-batches, where that is known; else the graph tells.
    """
    known = meanings(graph, request.rules)
    attention = {name: attended(graph, graph.op_by_name[name], sig) for name, (_, sig) in known.items()}
    return Facts(
        device_num=request.device_num,
        max_devices=request.cluster.max_ranks,
        model=request.model or graph.name,
        batch=request.global_batch_size,
        blocks=len(places(graph, fold(graph)).blocks),
        samples=batch_size(graph, known) * parts or None,
        weights=_cuttable(graph, known, {name: weight_dims(known[name][1]) for name in major_products(graph, known)}),
        experts=_cuttable(graph, known, {name: own_rows(known[name][1]) for name in expert_products(graph, known)}),
        attention=_cuttable(graph, known, {name: dims[1:] for name, dims in attention.items() if dims is not None}),
        whole=whole or why_whole(graph),
        one_stage=why_one_stage(graph),
        no_accumulation=why_no_accumulation(graph),
        one_run=why_one_run(graph),
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
