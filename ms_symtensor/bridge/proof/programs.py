"""The programs of a proof: one per rank from MindSpore's parallel compiler, and one of the whole network."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ms_symtensor.bridge.compiler.compile import CompiledModel, ParameterLayout, compile_model
from ms_symtensor.bridge.compiler.described_ranks import WORLD_GROUP
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.compiler.mindir_values import ValueReader
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.proof.definition import Group
from ms_symtensor.bridge.proof.float32 import to_float32
from ms_symtensor.bridge.proof.in_place import read_results
from ms_symtensor.bridge.proof.inlining import inline_functions
from ms_symtensor.bridge.proof.ordering import Meeting, order_collectives
from ms_symtensor.bridge.proof.reordering import Places, reorder
from ms_symtensor.bridge.proof.substitution import Substituter
from ms_symtensor.errors import CompilerError
from ms_symtensor.tensor.graph import TensorType

_CPU_WORLD_GROUP = "mccl_world_group"
_STAND_ALONE = ParallelConfig(parallel_mode="stand_alone", dataset_strategy="data_parallel")


@dataclass(frozen=True)
class Executable:
    """A program that MindSpore's CPU backend can load: `mindir` is its file's content.

    `inputs` and `parameters` are what this rank is given of them, in the program's order; `layouts` says which slices
    these are (what is not in it is whole). `groups` maps communication groups to global ranks; `meetings` is what it does with
    them, one after the other.
    """

    rank: int
    mindir: bytes
    inputs: tuple[tuple[str, TensorType], ...]
    parameters: tuple[tuple[str, TensorType], ...]
    layouts: Mapping[str, ParameterLayout]
    groups: Mapping[str, tuple[int, ...]]
    meetings: tuple[Meeting, ...] = ()


def compile_reference(step: Any, inputs: Sequence[Any], substituter: Substituter) -> Executable:
    """The training step `step` on one device. Strategies that its primitives carry do not count there."""
    return next(compile_ranks(step, inputs, 1, _STAND_ALONE, substituter))


def compile_forward(
    cell: Any, inputs: Sequence[Any], device_num: int, parallel: ParallelConfig | None, substituter: Substituter
) -> Iterator[Executable]:
    """A forward pass of `cell` for every rank; without `parallel` on one device."""
    for rank in range(device_num):
        compiled = compile_model(cell, *inputs, device_num=device_num, rank=rank, parallel=parallel or _STAND_ALONE)
        yield _executable(compiled, rank, device_num, substituter)


def compile_ranks(
    step: Any,
    inputs: Sequence[Any],
    device_num: int,
    parallel: ParallelConfig,
    substituter: Substituter,
    interleaved: bool = False,
    places_of: Callable[[int], Places | None] = lambda _: None,
) -> Iterator[Executable]:
    """The training step `step`, in which primitives carry their strategies, for every rank of `device_num` devices.

    It takes `inputs`, of global shapes, and then the initial gradient. `interleaved` stages keep their blocks as functions,
    or MindSpore would not interleave them; these are written out here. `places_of`: where a rank has its passes, if not in
    MindSpore's own order. CompilerError if MindSpore rejects it, or where an
    operator has no definition that a CPU could execute.
    """
    mindspore = import_mindspore()
    sens = mindspore.Tensor(numpy.ones((), numpy.float32))
    for rank in range(device_num):
        compiled = compile_model(
            step, *inputs, sens, device_num=device_num, rank=rank, parallel=parallel, inline_blocks=not interleaved
        )
        if interleaved:
            inline_functions(compiled.proto)
        if (wanted := places_of(rank)) is not None:
            reorder(compiled.proto, wanted)
        yield _executable(compiled, rank, device_num, substituter)


def _executable(compiled: CompiledModel, rank: int, device_num: int, substituter: Substituter) -> Executable:
    model, cluster = compiled.proto, compiled.cluster
    to_float32(model)
    read_results(model)

    def group_of(name: str) -> Group:
        ranks = cluster.ranks(name)
        return Group(ranks, ranks.index(rank))

    pairs = substituter.substitute(model, group_of, rank)
    groups = {name: pairs[name] if name in pairs else cluster.ranks(name) for name in _rename_groups(model)}
    meetings = order_collectives(model, {**groups, _CPU_WORLD_GROUP: tuple(range(device_num))})
    values = ValueReader()
    prefix = f"{model.graph.name}:"
    inputs = tuple((proto.name.removeprefix(prefix), values.input_types(proto)[0]) for proto in model.graph.input)
    parameters = tuple((proto.name.removeprefix(prefix), values.tensor(proto)) for proto in model.graph.parameter)
    layouts = {n: compiled.layout(n, t) for n, t in (*inputs, *parameters) if n in compiled.raw_layouts}
    for name, kind in (*inputs, *parameters):
        if name in layouts and slice_shape(layouts[name]) != kind.shape:
            raise CompilerError(
                f"rank {rank} holds {kind} of {name}, but its layout says {slice_shape(layouts[name])}: this cannot be proved"
            )
    return Executable(rank, model.SerializeToString(), inputs, parameters, layouts, groups, meetings)


def slice_shape(layout: ParameterLayout) -> tuple[int, ...]:
    """The shape of a rank's slice, the optimizer's cut included."""
    shape = layout.layout.slice_shape
    return (shape[0] // len(layout.optimizer_shard_ranks), *shape[1:]) if layout.optimizer_shard_ranks else shape


def _rename_groups(model: Any) -> list[str]:
    """The groups in `model` that are not the world; the world's name becomes that of the CPU's communication library."""
    found = set()
    for primitive in model.primitives:
        for attribute in primitive.attribute:
            if attribute.name == "group" and attribute.s:
                name = attribute.s.decode()
                if name == WORLD_GROUP:
                    attribute.s = _CPU_WORLD_GROUP.encode()
                else:
                    found.add(name)
    return sorted(found)
