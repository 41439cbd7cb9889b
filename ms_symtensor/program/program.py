"""The program of one rank as MindSpore's compiler will write it: local tensors, local work, collectives, in order."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from ms_symtensor.tensor.graph import TensorType
from ms_symtensor.tensor.layout import DeviceGroup, Layout

COLLECTIVES = frozenset({"AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "AlltoAllV"})


UNKNOWN_B = -1
"""In the place of bytes that are known at run time only (AlltoAllV with computed sizes)."""


def is_memory_view(kind: str) -> bool:
    """Whether nodes of that `kind` (those of `mint.chunk`) are views to MindSpore: with side effects, which it orders, and does
    not recompute.
    """
    return kind.endswith("View")


class Phase(Enum):
    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"  # forward work that is done again in the backward pass


class Role(Enum):
    """Why a node stands in the program."""

    WORK = "work"  # an operator of the graph, or its gradient
    COMBINE = "combine"  # partial results of an operator are summed or scattered
    MOVE = "move"  # a tensor goes from its producer's layout to its consumer's
    WEIGHT = "weight"  # a parameter is cast or gathered before use
    SYNC = "sync"  # a parameter's gradient is reduced
    INNER = "inner"  # a collective or Reshape that the user wrote inside an operator
    ADD = "add"  # gradients of several users of one tensor meet
    BORDER = "border"  # a tensor, or its gradient, goes to or comes from another pipeline stage


class Node(NamedTuple):
    """One piece of local work or one collective.

    `inputs` and `outputs` are numbers of local tensors (`Program.tensors`); `op` is the operator of the graph that caused
    it, `group` the ranks of a collective, `peer` the other pipeline stage of a Send or Receive, `parameter` the parameter
    whose weight or gradient it moves, `block` the repeated block it belongs to, `scratch` a tensor that is there only while
    it runs, `read_first` inputs that it reads before its outputs are there.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    role: Role
    phase: Phase
    op: str
    group: DeviceGroup | None = None
    parameter: str | None = None
    block: str | None = None
    attribute: tuple[int, ...] = ()
    peer: int | None = None
    scratch: int | None = None
    read_first: tuple[int, ...] = ()


@dataclass(frozen=True)
class ParameterPlacement:
    """Where a parameter lives: its layout, and the optimizer sharding of the copies (None: not sharded).

    `gather` holds the ranks that share one copy; `mirror` those over which the (scattered) gradient is summed. `unsummed`:
    there is a use whose gradient MindSpore leaves out of that sum. `owner`: the pipeline stage that updates and sends it,
    where this one only reads it. A `shared` parameter has several users, or is one of a block that is
    compiled once for all its calls: it is gathered, and its gradient summed, in the type it is stored in; otherwise a Cast to
    the type in use comes before the gather. `sums_each`: of such a block, and not sharded, so that the gradient of every use is
    summed by itself (but where gradients of micro-batches add up). `in_shared_block`: it is one of such a block.
    """

    layout: Layout
    dtype: str
    requires_grad: bool
    shard: int = 1
    gather: DeviceGroup | None = None
    mirror: DeviceGroup | None = None
    unsummed: bool = False
    shared: bool = False
    sums_each: bool = False
    in_shared_block: bool = False
    owner: int | None = None

    @property
    def slice_shape(self) -> tuple[int, ...]:
        """Shape of what a rank stores."""
        shape = self.layout.slice_shape
        return (shape[0] // self.shard, *shape[1:]) if shape else shape


@dataclass(frozen=True)
class Collective:
    """A collective as people and compilers count them.

    `size_B` is the larger of its local input and output, UNKNOWN_B where one of them is known at run time only.
    """

    kind: str
    ranks: tuple[int, ...]
    input_type: TensorType
    output_type: TensorType
    phase: Phase
    op: str
    parameter: str | None = None

    @property
    def size_B(self) -> int:
        if not (self.input_type.is_known and self.output_type.is_known):
            return UNKNOWN_B
        return max(self.input_type.size_B, self.output_type.size_B)


@dataclass(frozen=True)
class Program:
    """`tensors` are local types by number.

    `kept` are tensors that never count as activations: parameters, inputs, constants, and what only leads to a parameter's
    gradient. `given` are the inputs, `held` the parameters as they are stored, `seed` the gradient of the loss (None where the
    loss is another stage's). `recomputed` are the blocks that are recomputed, but for what they keep.
    """

    device_num: int
    tensors: tuple[TensorType, ...]
    nodes: tuple[Node, ...]
    parameters: Mapping[str, ParameterPlacement]
    kept: frozenset[int]
    given: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    seed: int | None = None
    recomputed: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether all sizes are known before the program runs."""
        return all(t.is_known for t in self.tensors)

    @cached_property
    def loads_anew(self) -> frozenset[int]:
        """The numbers of the nodes of the forward pass that load a weight anew in every micro-batch: those behind a view, and on
        one stage that has any, all. The look-ups of mint (Embedding) read their table as it is.
        """
        views = [number for number, node in enumerate(self.nodes) if is_memory_view(node.kind)]
        if not views:
            return frozenset()
        first = views[0] if any(node.role is Role.BORDER for node in self.nodes) else 0
        return frozenset(
            number
            for number, node in enumerate(self.nodes)
            if number >= first and node.phase is Phase.FORWARD and node.role not in (Role.WEIGHT, Role.BORDER)
            if node.kind != "Embedding" and not self.held.isdisjoint(node.inputs)
        )

    def collectives(self, rank: int = 0) -> tuple[Collective, ...]:
        """The collectives that `rank` takes part in, in order."""
        return tuple(
            Collective(
                n.kind, n.group.ranks(rank), self.tensors[n.inputs[0]], self.tensors[n.outputs[0]], n.phase, n.op, n.parameter
            )
            for n in self.nodes
            if n.kind in COLLECTIVES and n.group is not None
        )  # fmt: skip
