"""Compile one rank's program with MindSpore's parallel compiler, and read from it what was inserted."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ms_symtensor.bridge.compiler.described_ranks import Cluster
from ms_symtensor.bridge.compiler.executor import front_end, has_lazy_inline, without_lazy_inline
from ms_symtensor.bridge.compiler.host import ascend_compiler, import_mindspore
from ms_symtensor.bridge.compiler.mindir import read_graph
from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig, parallel_context
from ms_symtensor.errors import CompilerError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.tensor.graph import Source, TensorType
from ms_symtensor.tensor.layout import Layout


@dataclass(frozen=True)
class ParameterLayout:
    """How MindSpore lays out a parameter: `layout` is the cut by operators; on top of it the optimizer may cut dim 0.

    `slice_type` is what this rank holds in the end; `optimizer_shard_ranks` are the global ranks among which the
    optimizer cuts it, ascending, empty where it does not.
    """

    name: str
    layout: Layout
    slice_type: TensorType
    optimizer_shard_ranks: tuple[int, ...]


@dataclass(frozen=True)
class CompiledProgram:
    """What rank `rank` of `device_num` executes: MindSpore's graph after its last front-end pass.

    `graph.nodes` come after their inputs, in the order in which MindSpore writes them. `groups` maps the names of
    communication groups to their global ranks.
    """

    graph: NodeGraph
    device_num: int
    rank: int
    config: ParallelConfig
    layouts: tuple[ParameterLayout, ...]
    groups: dict[str, tuple[int, ...]] = field(hash=False)
    seconds: float
    mindspore: str

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.graph.nodes

    @property
    def node_by_name(self) -> dict[str, Node]:
        return self.graph.node_by_name

    @cached_property
    def layout_by_name(self) -> dict[str, ParameterLayout]:
        return {layout.name: layout for layout in self.layouts}

    def type_of(self, source: Source) -> TensorType | None:
        """The tensor type that `source` delivers, None where it is no single tensor."""
        return self.graph.type_of(source)


@dataclass(frozen=True)
class CompiledModel:
    """What MindSpore wrote for one rank: `proto` (a `mind_ir_pb2.ModelProto`), and the layouts of parameters and inputs.

    `cluster` knows the ranks of every communication group in it.
    """

    proto: Any
    raw_layouts: dict[str, tuple]
    cluster: Cluster

    def layout(self, name: str, slice_type: TensorType) -> ParameterLayout:
        """The layout of parameter or input `name`, of which the program holds `slice_type`."""
        return _layout(name, self.raw_layouts[name], slice_type, self.cluster)


@no_garbage_collection()
def compile_rank(
    cell: Any,
    *inputs: Any,
    device_num: int,
    rank: int = 0,
    parallel: ParallelConfig | None = None,
    inline_blocks: bool = False,
) -> CompiledProgram:
    """The program that MindSpore compiles for `rank` of `device_num` Ascend devices from `cell(*inputs)`.

    `cell` is a forward or a training cell (see `training_cell`) whose primitives carry their strategies (`shard`);
    `inputs` may be shape-only tensors. A block decorated with `@lazy_inline` is compiled once for all its calls, as
    in training, and appears in the program once per call; with `inline_blocks` each is compiled for itself (far
    slower, and needed for optimizer_level "level3", which MindSpore does not combine with such blocks). The process
    and the cell are afterwards as before. CompilerError where MindSpore rejects the program.
    """
    config = parallel or ParallelConfig()
    start = time.perf_counter()
    compiled = compile_model(
        cell, *inputs, device_num=device_num, rank=rank, parallel=config, inline_blocks=inline_blocks
    )
    graph = read_graph(compiled.proto)
    types = dict(graph.parameters)
    return CompiledProgram(
        graph=graph,
        device_num=device_num,
        rank=rank,
        config=config,
        layouts=tuple(
            compiled.layout(p.name, types[p.name])
            for p in cell.get_parameters()
            if p.name in compiled.raw_layouts and p.name in types
        ),
        groups=dict(compiled.cluster.groups),
        seconds=time.perf_counter() - start,
        mindspore=import_mindspore().__version__,
    )


def compile_model(
    cell: Any, *inputs: Any, device_num: int, rank: int, parallel: ParallelConfig, inline_blocks: bool = False
) -> CompiledModel:
    """The program of `compile_rank` as MindSpore writes it."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ascend_compiler(device_num, rank))
        stack.enter_context(parallel_context(device_num, rank, parallel))
        if inline_blocks:
            stack.enter_context(without_lazy_inline(cell))
        try:
            return CompiledModel(*front_end(cell, inputs, "compile"), cluster)
        except CompilerError as error:
            if parallel.enable_parallel_optimizer and parallel.optimizer_level == "level3" and has_lazy_inline(cell):
                raise CompilerError(
                    f"{error}; MindSpore does not combine optimizer_level level3 with @lazy_inline"
                ) from error
            raise


def _layout(name: str, raw: tuple, slice_type: TensorType, cluster: Cluster) -> ParameterLayout:
    """From MindSpore's tuple: device matrix, tensor map, slice, field, even, optimizer's group, full shape, ..."""
    device_matrix, tensor_map, optimizer_group, full_shape = raw[0], raw[1], raw[5], raw[6]
    return ParameterLayout(
        name=name,
        layout=Layout(tuple(device_matrix), tuple(tensor_map), tuple(full_shape)),
        slice_type=slice_type,
        optimizer_shard_ranks=cluster.ranks(optimizer_group) if optimizer_group else (),
    )
