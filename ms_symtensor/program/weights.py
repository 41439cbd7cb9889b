"""Which layout the operators want their parameters in."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import Placement
from ms_symtensor.ops.signature import Signature
from ms_symtensor.program.parameters import is_summed, place_parameter
from ms_symtensor.program.program import ParameterPlacement
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.graph import Graph, Op, OpOutput, ParameterRef, Source
from ms_symtensor.tensor.layout import Layout

Use = tuple[Op, int, Layout]
"""An operator that reads a parameter, as which tensor input, and the layout that it wants."""


def root_of(graph: Graph, signatures: Mapping[str, Signature], source: Source) -> Source:
    """The source behind operators that MindSpore lets pass whatever layout comes (Cast)."""
    while isinstance(source, OpOutput):
        op = graph.op_by_name[source.op]
        if op.reshapes or signatures[op.name].shardable:
            break
        source = graph.tensor_inputs(op)[0]
    return source


def place_parameters(
    graph: Graph,
    signatures: Mapping[str, Signature],
    placements: Mapping[str, Placement],
    settings: Settings,
    never_shared: Collection[str] = (),
) -> dict[str, ParameterPlacement]:
    """The placement of every parameter that is used, in the graph's order.

    The optimizer does not shard those in `never_shared`.
    InvalidStrategyError where two operators want one parameter cut differently.
    """
    unshared = replace(settings, optimizer_level=OptimizerLevel.NONE)
    uses: dict[str, list[Use]] = {}
    for op in graph.ops:
        for name, use in _uses(graph, signatures, placements.get(op.name), op, settings.device_num):
            uses.setdefault(name, []).append(use)
            _require_same(name, uses[name][0], use)
    placed = {}
    for parameter in graph.parameters:
        if parameter.name in uses:
            summed = {is_summed(op.type, position) for op, position, _ in uses[parameter.name]}
            layout = uses[parameter.name][0][2]
            chosen = unshared if parameter.name in never_shared else settings
            found = place_parameter(parameter, layout, chosen, True in summed, False in summed)
            placed[parameter.name] = replace(
                found,
                shared=parameter.in_shared_block or _is_shared(graph, parameter.name),
                sums_each=parameter.in_shared_block and found.shard == 1,
                in_shared_block=parameter.in_shared_block,
            )
    return placed


def _is_shared(graph: Graph, name: str) -> bool:
    """Whether a parameter has several users; Casts to the same type are one."""
    users = graph.users.get(ParameterRef(name), ())
    return len({op.outputs[0].dtype if op.type == "Cast" else op.name for op, _ in users}) > 1


def _uses(
    graph: Graph, signatures: Mapping[str, Signature], placement: Placement | None, op: Op, device_num: int
) -> Iterator[tuple[str, Use]]:
    if placement is None and op.type != "Reshape":
        return
    for position, source in enumerate(graph.tensor_inputs(op)):
        root = root_of(graph, signatures, source)
        if isinstance(root, ParameterRef):
            shape = graph.parameter_by_name[root.name].type.shape
            yield (
                root.name,
                (op, position, _reshaped(shape, device_num) if placement is None else placement.inputs[position]),
            )


def _reshaped(shape: tuple[int, ...], device_num: int) -> Layout:
    """How a parameter lies that is reshaped first: its leading dim cut by all devices where it divides, else whole."""
    is_cut = bool(shape) and shape[0] % device_num == 0
    return Layout((device_num,), (0 if is_cut else -1, *(-1,) * (len(shape) - 1)) if shape else (), shape)


def _require_same(name: str, first: Use, other: Use) -> None:
    (op, _, known), (second, _, layout) = first, other
    if known.slice_shape != layout.slice_shape or known.copies.ranks() != layout.copies.ranks():
        raise InvalidStrategyError(
            f"parameter {name}: {op.name} wants it cut {known.cuts}, {second.name} cut {layout.cuts}; MindSpore stores one"
            " layout per parameter, so give both operators the same cuts of it"
        )
