"""Morph: an operator whose function on slices the user wrote. MindSpore puts the function in its place; a capture keeps the
operator, with the layouts that it was given, and reads the function by itself, at the shapes of one device.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ms_symtensor.bridge.compiler.executor import front_end
from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.compiler.mindir import read_graph
from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.bridge.compiler.parallel_context import stand_alone_context
from ms_symtensor.errors import CompilerError, InputError
from ms_symtensor.ops.fixed import COLLECTIVES
from ms_symtensor.tensor.extended_layout import ExtendedMap, extended_layout
from ms_symtensor.tensor.graph import Attribute, Constant, Graph, Op, OpOutput, Source, TensorType, replaced

_LAYOUTS = ("in_layout", "out_layout")
_FUNCTION = ("fn", "infer_shape", "infer_dtype", "bprop_fn", "__metamorphosis__")
_SIDE_EFFECTS = ("side_effect_backprop", "side_effect_mem", "side_effect_io")
_DROPPED = ("group", "rank_size")  # names and sizes of groups: `ranks` says it all

Given = tuple[tuple[int, ...], ExtendedMap]
"""A Layout object: device matrix and tensor map."""

Body = tuple[tuple[tuple[str, Attribute], ...], Graph]
"""Layouts, as attributes of the operator, and what it does on one device."""


def is_morph(primitive: Any) -> bool:
    return getattr(primitive, "name", None) == "Morph"


@contextmanager
def opaque(primitives: list[Any]) -> Iterator[None]:
    """While open, the Morphs among `primitives` stay operators, and nothing has attributes that a graph file cannot hold."""
    with ExitStack() as stack:
        for primitive in primitives:
            names = (*_LAYOUTS, *_FUNCTION, *_SIDE_EFFECTS) if is_morph(primitive) else _LAYOUTS
            stack.enter_context(_without(primitive, names))
        yield


@contextmanager
def _without(primitive: Any, names: tuple[str, ...]) -> Iterator[None]:
    held = {name: primitive.attrs[name] for name in names if name in primitive.attrs}
    own = {name: primitive.__dict__[name] for name in held if name in primitive.__dict__}
    for name in held:
        primitive.del_prim_attr(name)
    try:
        yield
    finally:
        for name, value in held.items():
            primitive.add_prim_attr(name, value)
            if name not in own:
                primitive.__dict__.pop(name, None)
        primitive.__dict__.update(own)


def layouts_of(primitive: Any, where: str) -> dict[str, tuple[Given, ...]]:
    """Device matrix and tensor map of every tensor, as `shard` was given them as Layout objects; empty if it was not.

    InputError for what no layout of ours can say.
    """
    found = {}
    for name in _LAYOUTS:
        if name in primitive.attrs:
            found[name] = tuple(_layout(given, where) for given in _opened(primitive, primitive.attrs[name], where))
    return found


def _opened(primitive: Any, layouts: Iterable[Any], where: str) -> Iterator[Any]:
    """`layouts`, those of the tensors in a tuple (Concat's, Stack's) one after the other, as a graph lists these."""
    for given in layouts:
        if isinstance(given, Mapping):
            yield given
        elif is_morph(primitive):
            raise InputError(f"{where}: layouts of tuples of tensors are not read: give the tensors one by one")
        else:
            yield from _opened(primitive, given, where)


def _layout(given: Any, where: str) -> Given:
    if given.get("interleaved_parallel"):
        raise InputError(f'{where}: a Layout with "interleaved_parallel" is not read: leave that axis out')
    ranks = given.get("rank_list")
    if ranks is not None and list(ranks) != sorted(ranks):
        raise InputError(f"{where}: a Layout with its own rank_list is not read: give the ranks in their order")
    return tuple(given["device_matrix"]), tuple(
        tuple(e) if isinstance(e, tuple | list) else e for e in given["tensor_map"]
    )


def body_of(primitive: Any, node: Node, types: tuple[TensorType | None, ...]) -> Body:
    """Layouts and body of the Morph `node`, whose inputs have the global `types` (None: no tensor).

    Errors: InputError where it is not laid out, or reads parameters that are not among its inputs; CompilerError where
    MindSpore rejects its function at the shapes of one device.
    """
    where = f"{node.name} (Morph)"
    if getattr(primitive, "__morph_bprop_fn__", None) is not None:
        raise InputError(
            f"{where} has a bprop_fn, which is not read: leave it to MindSpore to differentiate the function"
        )
    layouts = layouts_of(primitive, where)
    tensors = [t for t in types if t is not None]
    if len(layouts.get("in_layout", ())) == len(types):  # one for what is None here, too
        paired = zip(layouts["in_layout"], types, strict=True)
        layouts["in_layout"] = tuple(layout for layout, kind in paired if kind is not None)
    if "in_layout" not in layouts or "out_layout" not in layouts or len(layouts["in_layout"]) != len(tensors):
        raise InputError(
            f"{where} needs a Layout for each of its tensors, in in_strategy and out_strategy of shard(), to be predicted"
        )
    slices = []
    for tensor, (matrix, tensor_map) in zip(tensors, layouts["in_layout"], strict=True):
        try:
            slices.append(extended_layout(matrix, tensor_map, tensor.shape).slice_shape)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
    device_num = math.prod(layouts["in_layout"][0][0])
    local = iter(TensorType(shape, t.dtype) for shape, t in zip(slices, tensors, strict=True))
    arguments = [_argument(s, t, local, where) for s, t in zip(node.inputs, types, strict=True)]
    return tuple(sorted(layouts.items())), _captured(primitive, arguments, device_num, where)


def _argument(source: Source, kind: TensorType | None, local: Iterator[TensorType], where: str) -> Any:
    if kind is None and not isinstance(source, Constant):
        raise InputError(f"{where}: an input that is a tuple of tensors is not read: give the tensors one by one")
    return next(local) if kind is not None else source.value  # type: ignore[union-attr]


def _captured(primitive: Any, arguments: list[Any], device_num: int, where: str) -> Graph:
    from ms_symtensor.bridge.capture.morph_cell import MorphCell

    cell = MorphCell(primitive)
    before, own = divmod(_own_rank(), device_num)  # pipeline stages have the same number of devices each
    with ascend_compiler(device_num, own) as cluster, stand_alone_context():
        cluster.groups |= {name: tuple(_of_stage(ranks, before, device_num)) for name, ranks in cluster.groups.items()}
        inputs = [_shape_only(a) if isinstance(a, TensorType) else a for a in arguments]
        with _without(primitive, _LAYOUTS):
            try:
                model, _ = front_end(cell, inputs, "morph")
            except CompilerError as error:
                raise CompilerError(f"{where}, on the slices of one device: {error}") from error
        graph = read_graph(model)
        if graph.parameters:
            raise InputError(
                f"{where} reads the parameter {graph.parameters[0][0]}, which is no input of it: hand it in"
            )
        return _body(graph, cluster.ranks)


def _body(graph: NodeGraph, ranks_of: Any) -> Graph:
    """The operators that deliver tensors; what others deliver (a shape that is known at run time only) is as a constant."""
    made = {node.name for node in graph.nodes if node.outputs}

    def tensors(source: Source) -> Source:
        return Constant() if isinstance(source, OpOutput) and source.op not in made else source

    nodes = [node for node in graph.nodes if node.outputs]
    return Graph(
        "Morph",
        graph.inputs,
        (),
        tuple(
            Op(n.name, n.type, tuple(replaced(s, tensors) for s in n.inputs), n.outputs, _attributes(n, ranks_of))
            for n in nodes
        ),
        graph.output,
    )


def _attributes(node: Node, ranks_of: Any) -> tuple[tuple[str, Attribute], ...]:
    kept = dict(node.attributes)
    if node.type in COLLECTIVES:
        kept = {name: value for name, value in kept.items() if name not in _DROPPED}
        kept["ranks"] = tuple(ranks_of(node.attribute("group")))
    return tuple(sorted((k, v) for k, v in kept.items() if k not in ("input_names", "output_names")))


def _of_stage(ranks: Iterable[int], stage: int, device_num: int) -> Iterator[int]:
    """Ranks of a group within pipeline stage `stage`, of `device_num` ranks; those of the compiler are so before."""
    return (rank - stage * device_num if rank // device_num == stage else rank for rank in ranks)


def _own_rank() -> int:
    """The rank that the process plays, whose groups its network has."""
    from mindspore.communication import GlobalComm, get_rank

    return int(get_rank()) if GlobalComm.INITED else 0


def _shape_only(kind: TensorType) -> Any:
    import mindspore
    from mindspore.common.initializer import Zero

    dtype = getattr(mindspore, "bool_" if kind.dtype == "bool" else kind.dtype)
    return mindspore.Tensor(shape=kind.shape, dtype=dtype, init=Zero()) if kind.shape else mindspore.Tensor(0, dtype)
