"""What an operator means to a planner: the named dims of its tensors, and what follows from cutting them.

A signature is one line, read like einsum, e.g. `"m k, k n -> m n"` for MatMul. Every name is a dim that may be cut; the
same name in several tensors must be cut alike. From the line follow

- what may be cut: every name not marked whole;
- partial sums: a name that stands in an input but in no output leaves a partial result on each device, to be combined
  over the devices that cut it (AllReduce, or ReduceScatter where the output is wanted cut);
- gradients: the gradient of an input is partial over every device axis that does not cut that input.

`ops.grammar` reads such lines, `ops.rule` makes signatures of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Attribute, Constant, Graph, Op, TensorType, flat
from ms_symtensor.tensor.layout import Layout

Dims = tuple[str | None, ...]
"""Dim names of one tensor; None where a dim takes no part (size one, or broadcast)."""
DimsOf = Callable[[str], Sequence[str]]
"""The dims that a text of names, words and `…...` of a rule's line stands for, in its order."""

NO_DIM = "1"
"""Stands where the name of a dim would, for none."""


class Unit(Enum):
    """The unit of the device that does an operator's work."""

    CUBE = "cube"  # matrix unit: counted in multiply-adds over all named dims
    VECTOR = "vector"  # element-wise: bound by memory traffic
    NONE = "none"  # bookkeeping: moves no data (a view), or is folded away


class Combine(Enum):
    """How partial results over a cut dim are combined."""

    SUM = "sum"
    MEAN = "mean"  # a sum, then divided by the number of partial results
    PROD = "prod"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True)
class OpView:
    """An operator with the types of its tensors at hand: all that a rule may look at.

    `arguments` are the compile-time values among its inputs, in order. `positions` tells for every tensor input which of
    the operator's inputs it is, for operators with optional tensors; empty means 0, 1, 2, ... `body` is what an operator
    written by the user does on one device. `of_constants`: all tensors that it reads are known at compile time.
    """

    type: str
    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    arguments: tuple[Attribute, ...]
    attributes: Mapping[str, Attribute]
    positions: tuple[int, ...] = ()
    body: Graph | None = None
    of_constants: bool = False

    def argument(self, position: int, name: str, default: Attribute = None) -> Attribute:
        """Number `position` of the compile-time arguments (from the last, if negative), or else attribute `name`."""
        if -len(self.arguments) <= position < len(self.arguments):
            return self.arguments[position]
        return self.attributes.get(name, default)


def view(graph: Graph, op: Op) -> OpView:
    """The view of `op` that rules are given."""
    tensors = [
        (i, t) for i, source in enumerate(op.inputs) for s in flat((source,)) if (t := graph.type_of(s)) is not None
    ]
    arguments = tuple(s.value for s in op.inputs if isinstance(s, Constant) and s.tensor is None)
    return OpView(
        op.type,
        op.name,
        tuple(t for _, t in tensors),
        op.outputs,
        arguments,
        dict(op.attributes),
        tuple(i for i, _ in tensors),
        op.body,
        all(isinstance(source, Constant) for source in flat(op.inputs)),
    )


@dataclass(frozen=True)
class FixedLayouts:
    """The layouts of an operator's tensors, where they are given and not derived from cuts."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]


@dataclass(frozen=True)
class Signature:
    """The named dims of one operator at its actual shapes.

    - `inputs`, `outputs`: dims of every tensor; `sizes`: their global sizes.
    - `entries`: the dims that the entries of MindSpore's strategy list, where these are not the dims of the inputs.
    - `mesh`: the dims in the order in which MindSpore lays them on the device matrix, major first. Devices that no cut uses
      repeat the work on one more axis, the minor one, or the major one where a dim of `repeat_left_when` is cut.
    - `fixed`: dims that stay whole; `forbids` tells why the slices per dim (on so many devices) are not accepted, or
      None, for rules that depend on several of them.
    - `miscompiled`: dims whose cut MindSpore compiles to a wrong result; `gradient_miscompiled`: to a wrong gradient. Plans
      do not cut them; a strategy by hand may, and what is compiled of it is known.
    - `unit`, `flops_per_point`: where the work is done; for the cube the multiply-adds are counted over all dims.
    - `operations`: of the vector unit, in float32 per element of the first input, where they may take longer than the traffic.
    - `head_dim`: of fused attention, which takes the vector unit as long for narrow heads as for wider ones; `keys`: how many a
      query meets on average.
    - `read_shares`: of every input which share moves through memory; none given: all of each.
    - `rising`: the dim along which the work rises from none to twice the average (the rows of a causal mask), so that the last
      of its slices takes longest.
    - `combine`: how partial results over a reduced dim are combined; `scatter`: the dim of output 0 along which they may
      be scattered instead of reduced to all (`out_strategy`), None where MindSpore offers no such form. With
      `implicit_reduce_scatter` they are scattered even without an out_strategy, where that dim is whole and divides; with
      `scatters_whole_only` they cannot be where that dim is cut.
    - `layouts`: those of an operator that the user laid out (`Morph`): it takes no strategy; `body` are the signatures of
      what it does on one device, by operator.
    - `inner`: dims that are summed inside the operator although outputs have them (the norm of a cut vector); the partial
      sum is of the shape of output number `partial_output`, and of element type `partial_dtype` where that is another one.
    - `keeps_inputs`, `keeps_outputs`: positions of the tensors that the gradient reads; where `bilinear`, the gradient of
      an input reads only the other inputs (MatMul, Mul); `reads_no_output`: the input whose gradient reads inputs alone (the
      dividend of a quotient, the base of a power).
    - `differentiable`: positions of the inputs that have a gradient (all floating-point ones by default).
    - `is_view`: its result lies in the memory of its first input: a view, or a change in place.
    - `shardable`: False where MindSpore takes no strategy (Reshape, Cast): the layout follows from the neighbours.
    - `is_distributed`: False where MindSpore has no distributed form of the operator (`batch_only`).
    - `leading`: the dim that MindSpore cuts of an operator that is given no strategy, the first one of the first input unless
      another one is named here, or `NO_DIM`; `needs_strategy` tells whether it rejects such an operator on so many devices.
    """

    inputs: tuple[Dims, ...]
    outputs: tuple[Dims, ...]
    sizes: Mapping[str, int]
    mesh: tuple[str, ...]
    fixed: frozenset[str] = frozenset()
    miscompiled: frozenset[str] = frozenset()
    gradient_miscompiled: frozenset[str] = frozenset()
    unit: Unit = Unit.VECTOR
    flops_per_point: float = 2.0
    operations: float = 0.0
    head_dim: int = 0
    keys: float = 0.0
    rising: str | None = None
    read_shares: tuple[float, ...] = ()
    combine: Combine = Combine.SUM
    scatter: str | None = None
    keeps_inputs: tuple[int, ...] = ()
    keeps_outputs: tuple[int, ...] = ()
    bilinear: bool = False
    reads_no_output: int | None = None
    differentiable: tuple[int, ...] | None = None
    is_view: bool = False
    shardable: bool = True
    is_distributed: bool = True
    leading: str | None = None
    needs_strategy: Callable[[int], bool] | None = None
    entries: tuple[Dims, ...] | None = None
    repeat_left_when: frozenset[str] = frozenset()
    forbids: Callable[[Mapping[str, int], int], str | None] | None = None
    implicit_reduce_scatter: bool = False
    scatters_whole_only: bool = False
    inner: tuple[str, ...] = ()
    partial_output: int = 0
    partial_dtype: str | None = None
    layouts: FixedLayouts | None = None
    body: Mapping[str, "Signature"] | None = None

    @cached_property
    def cuttable(self) -> tuple[str, ...]:
        """Dims that a planner may cut, in mesh order.

        Inner dims are left out: MindSpore then replaces the operator by several, whose memory a signature does not tell.
        """
        return tuple(d for d in self.mesh if d not in self.fixed | self.miscompiled and d not in self.inner)

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """Dims whose cut leaves partial results in the outputs, in mesh order."""
        kept = {d for dims in self.outputs for d in dims}
        return tuple(d for d in self.mesh if d not in kept or d in self.inner)


def named(op: OpView, inputs: Sequence[Dims], outputs: Sequence[Dims], **more) -> Signature:
    """The signature whose tensors have the dims `inputs` and `outputs`, for rules that a line cannot say.

    A name's size is the greatest common divisor of what it names, e.g. of query heads and key-value heads: the largest
    number of equal slices that all of them can be cut into. `mesh` defaults to the order of first appearance. Dims of
    size one are left out.
    """
    sizes: dict[str, int] = {}
    kept: list[Dims] = []
    for dims, tensor in zip((*inputs, *outputs), (*op.inputs, *op.outputs[: len(outputs)]), strict=True):
        if len(dims) != len(tensor.shape):
            raise InputError(f"{op.name} ({op.type}): a tensor {tensor} where the signature expects {len(dims)} dims")
        kept.append(tuple(None if d is None or n == 1 else d for d, n in zip(dims, tensor.shape, strict=True)))
        for dim, size in zip(kept[-1], tensor.shape, strict=True):
            if dim is not None:
                sizes[dim] = math.gcd(sizes.get(dim, size), size)
    sizes |= more.pop("sizes", {})
    order = more.pop("mesh", tuple(sizes))
    mesh = tuple(d for d in order if d in sizes)
    if "entries" in more:
        more["entries"] = tuple(tuple(d if d in sizes else None for d in dims) for dims in more["entries"])
    return Signature(tuple(kept[: len(inputs)]), tuple(kept[len(inputs) :]), sizes, mesh, **more)


def dims_like(rank: int, prefix: str = "d") -> tuple[str, ...]:
    """Names for the dims of a tensor of any rank: `("d0", "d1", ...)`."""
    return tuple(f"{prefix}{i}" for i in range(rank))


def positive(axis: Attribute, rank: int) -> tuple[int, ...]:
    """The axes that an operator's argument names (a number, several, or all: None or ()), counted from the left."""
    match axis:
        case None | ():
            return tuple(range(rank))
        case int():
            return (axis % rank if rank else 0,)
        case tuple():
            return tuple(int(a) % rank for a in axis)  # type: ignore[arg-type]
        case _:
            raise InputError(f"an axis must be a number or a tuple of numbers, not {axis!r}")
