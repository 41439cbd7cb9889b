"""What one operator costs on one device: its kernels (`cost.kernel`), over its dims N_d, its cut degrees c_d and the device.

The matrix unit's products are bound by multiply-adds or by memory traffic, work on the vector unit mostly by memory traffic.
Under a causal mask the last of c slices of the sequence sees (2c - 1)/c times as much as the average one, and the others wait
for it at the next collective.

The backward pass of a product computes another product per input with a gradient, whose elements are those of the input, with as
many FLOPs: the gradient of a narrow weight has few elements, each a long sum. Where an operand was broadcast, it is computed for
every matrix of the result, and a pass over memory sums that up. That of other operators reads the incoming gradient and what was
kept, and writes the gradients of its inputs, unless the incoming gradient is passed on as it is (Add).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from ms_symtensor.algebra import symbols as s
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.kernel import (
    Array,
    Kernel,
    attention_float32_s,
    attention_s,
    pass_s,
    product_float32_s,
    product_s,
    vector_s,
)
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Dims, OpView, Signature, Unit
from ms_symtensor.program.gradients import passes_on
from ms_symtensor.program.scratch import before_sum
from ms_symtensor.tensor.dtype import has_gradients, size_B
from ms_symtensor.tensor.graph import TensorType


def dim_size(name: str) -> sympy.Symbol:
    """N_<dim>: elements of a dim of the whole tensor."""
    return s.symbol(f"N_{name}", "1", f"size of dim {name}", rf"N_{{{name}}}", positive=True, integer=True)


def cut_degree(name: str) -> sympy.Symbol:
    """c_<dim>: into how many slices a dim is cut."""
    return s.symbol(f"c_{name}", "1", f"slices of dim {name}", rf"c_{{{name}}}", positive=True, integer=True)


@dataclass(frozen=True)
class OperatorCosts:
    """Seconds of an operator's own work and its FLOPs (multiply-adds times two) on one device; of formulas also bytes of the
    slices of every tensor. Formulas at its rank and element types, or their values for a row of candidates, one entry each.
    """

    forward_s: Any
    backward_s: Any
    forward_flops: Any
    inputs_B: tuple[sympy.Expr, ...] = ()
    outputs_B: tuple[sympy.Expr, ...] = ()


def operator_formulas(op: OpView, sig: Signature, products: int) -> OperatorCosts:
    """Formulas of `op`; `products` is how many of its inputs have a gradient that it computes (0: no backward pass)."""
    degrees = {d: cut_degree(d) for d in sig.mesh}
    inputs, outputs = _slices_B(op, sig, dim_size, degrees)
    slices = degrees[sig.rising] if sig.rising else 1
    of = operator_kernels(op, sig, products, {d: dim_size(d) / degrees[d] for d in sig.mesh}, inputs, outputs, slices)
    forward_s, backward_s = (
        sum((kernel.expression for kernel in kernels), sympy.Integer(0)) for kernels in (of.forward, of.backward)
    )
    return OperatorCosts(
        forward_s,
        backward_s,
        sympy.sympify(of.flops),
        tuple(map(sympy.sympify, inputs)),
        tuple(map(sympy.sympify, outputs)),
    )


@dataclass(frozen=True)
class OperatorKernels:
    """The kernels that an operator runs on one device in either direction, and its FLOPs forward."""

    forward: tuple[Kernel, ...] = ()
    backward: tuple[Kernel, ...] = ()
    flops: Any = 0


def operator_kernels(
    op: OpView,
    sig: Signature,
    products: int,
    local: Mapping[str, Any],
    inputs_B: Sequence[Any],
    outputs_B: Sequence[Any],
    slices: Any = 1,
) -> OperatorKernels:
    """The kernels of `op`, from what one device works on: its slice of every dim (`local`) and the bytes of every tensor's slice,
    `slices` of the dim with rising work: numbers, arrays or expressions. `products` as of `operator_formulas`.
    """
    if sig.unit is Unit.NONE:
        return OperatorKernels()
    shares = sig.read_shares or (1,) * len(inputs_B)
    traffic = sum(share * each for share, each in zip(shares, inputs_B, strict=True)) + sum(outputs_B)
    gradients = gradients_of(op, sig, products)
    last = (Kernel(pass_s, {"traffic_B": gradients.moved_B(inputs_B, outputs_B)}),) if gradients.passes else ()
    if sig.unit is Unit.VECTOR:
        forward = Kernel(pass_s, {"traffic_B": traffic})
        if sig.operations:
            operations = sig.operations * (inputs_B[0] / size_B(op.inputs[0].dtype))
            forward = Kernel(vector_s, {"traffic_B": traffic, "operations": operations})
        return OperatorKernels((forward,), last)
    points = math.prod(local[d] for d in sig.mesh)
    flops = sig.flops_per_point * points
    in_float32 = op.inputs[0].dtype == "float32"
    if sig.head_dim:
        rising = 2 - 1 / slices if sig.rising else 1
        seen = {
            "rows": points * _whole(sig.flops_per_point / (4 * sig.head_dim * sig.keys)),
            "keys": rising * _whole(sig.keys), "head_dim": sig.head_dim,
            "traffic_B": traffic,
        }  # fmt: skip
        formula = attention_float32_s if in_float32 else attention_s
        back = (Kernel(formula, seen, gradients.forwards),) if gradients.forwards else ()
        return OperatorKernels((Kernel(formula, seen),), (*back, *last), flops)

    def product(elements: Any) -> Kernel:
        """One with a result of so many elements."""
        arguments = {
            "elements": elements, "depth": points / elements, "flops": sig.flops_per_point, "traffic_B": traffic,
        }  # fmt: skip
        return Kernel(product_float32_s if in_float32 else product_s, arguments)

    backward: list[Kernel] = []
    for i, dims in zip(gradients.operands, gradients.computed, strict=True):
        element_B = size_B(op.inputs[i].dtype)
        elements = inputs_B[i] / element_B
        if dims is not None:
            elements = math.prod(local[d] for d in dims)
            backward.append(Kernel(pass_s, {"traffic_B": elements * element_B + inputs_B[i]}))
        backward.append(product(elements))
    summed = summed_dims(sig)
    result = math.prod(local[d] for d in sig.mesh if d not in summed)
    return OperatorKernels((product(result),), (*backward, *last), flops)


def kernel_num(op: OpView, sig: Signature, products: int, is_backward: bool) -> int:
    """How many kernels `operator_kernels` has in that direction."""
    if sig.unit is Unit.NONE:
        return 0
    if not is_backward:
        return 1
    found = gradients_of(op, sig, products)
    sums = sum(dims is not None for dims in found.computed)
    return len(found.operands) + sums + bool(found.forwards) + bool(found.passes)


def _whole(number: float) -> float:
    """`number`, an int where it is one: printed without a fraction."""
    return int(number) if float(number).is_integer() else number


def kernels_of(op: OpView) -> tuple[tuple[Kernel, ...], float]:
    """The forward kernels of `op` on one device, uncut, in numbers, and its FLOPs."""
    sig = signature(op)
    bytes_ = ([float(t.size_B) for t in tensors] for tensors in (op.inputs, op.outputs[: len(sig.outputs)]))
    found = operator_kernels(op, sig, 0, {d: float(n) for d, n in sig.sizes.items()}, *bytes_)
    return found.forward, float(found.flops)


def summed_dims(sig: Signature) -> tuple[str, ...]:
    """The dims that a product sums over; fused attention sums inside. Tensors do not name a dim of size 1."""
    return tuple(d for d in sig.mesh if d not in sig.outputs[0] and sig.sizes[d] > 1)


@dataclass(frozen=True)
class Gradients:
    """What the gradients of inputs take: a product for each of the inputs `operands`, with the dims `computed` before they are
    summed up (None: none is); or `forwards` times the operator's forward pass; and a pass over memory for those of the inputs
    `passes`, which reads the inputs `reads`, the outputs `kept` and the gradients of the outputs `arriving`.
    """

    operands: tuple[int, ...] = ()
    computed: tuple[frozenset[str] | None, ...] = ()
    forwards: float = 0.0
    passes: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    arriving: tuple[int, ...] = ()

    def moved_B(self, inputs_B: Sequence[Any], outputs_B: Sequence[Any]) -> Any:
        """Bytes of that pass, from those of the tensors: numbers, arrays or formulas."""
        read = (*(inputs_B[i] for i in self.reads), *(outputs_B[i] for i in (*self.kept, *self.arriving)))
        return sum((*read, *(inputs_B[i] for i in self.passes)))


def gradients_of(op: OpView, sig: Signature, number: int) -> Gradients:
    """Those of `op` if it computes so many: of the largest inputs that can have one, as what has none is mostly small."""
    result = op.outputs[0].shape if op.outputs else ()
    can = range(len(op.inputs)) if sig.differentiable is None else sig.differentiable
    computed = [i for i in can if not passes_on(op.type, i, op.inputs[i].shape, result)]
    chosen = sorted(computed, key=lambda i: -op.inputs[i].size_B)[:number]
    if not chosen:
        return Gradients()
    arriving = tuple(
        i
        for i, t in enumerate(op.outputs[: len(sig.outputs)])
        if not i or (has_gradients(t.dtype) and i not in sig.keeps_outputs)
    )
    if sig.unit is Unit.CUBE:
        if sig.head_dim:
            return Gradients(forwards=ATTENTION_BACKWARD)
        summed = summed_dims(sig)
        operands = tuple(i for i in chosen if any(d in sig.inputs[i] for d in summed))
        dims = tuple(_computed_dims(op, sig, i) for i in operands)
        return Gradients(operands, dims, passes=tuple(i for i in chosen if i not in operands), arriving=arriving)
    kept = () if chosen == [sig.reads_no_output] else tuple(i for i in sig.keeps_outputs if i < len(sig.outputs))
    return Gradients(passes=tuple(chosen), reads=sig.keeps_inputs, kept=kept, arriving=arriving)


def _computed_dims(op: OpView, sig: Signature, position: int) -> frozenset[str] | None:
    """The dims of the gradient of a product's operand, before it is summed over those along which the operand was broadcast."""
    shape = op.inputs[position].shape
    if before_sum(op.type, shape, op.outputs[0].shape) == shape:
        return None
    return frozenset(d for d in (*sig.outputs[0][:-2], *sig.inputs[position]) if d is not None)


def _slices_B(
    op: OpView, sig: Signature, size: Callable[[str], Any], degrees: Mapping[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Bytes of one device's slices of inputs and outputs, from the `size` of a dim and the `degrees` of cuts: numbers, arrays or
    symbols.
    """

    def slice_B(tensor: TensorType, dims: Dims) -> Any:
        sizes = (n if d is None or sig.sizes[d] != n else size(d) for n, d in zip(tensor.shape, dims, strict=True))
        cuts = [degrees[d] for d in dims if d is not None]
        whole_B = math.prod(sizes, start=size_B(tensor.dtype))
        return whole_B / math.prod(cuts) if cuts else whole_B

    inputs, outputs = zip(op.inputs, sig.inputs, strict=True), zip(op.outputs, sig.outputs, strict=False)
    return [slice_B(*each) for each in inputs], [slice_B(*each) for each in outputs]


ATTENTION_BACKWARD = 2.5
"""Five products backward to two forward, in one kernel whichever gradients are wanted (FlashAttention-2, arXiv 2307.08691,
section 4.1).
"""


def evaluate(
    op: OpView, sig: Signature, products: int, cuts: Sequence[Mapping[str, int]], cluster: Cluster
) -> OperatorCosts:
    """Values of `operator_formulas(op, sig, products)` for every candidate in `cuts` (slices per dim, missing: 1)."""
    degrees = {d: np.array([c.get(d, 1) for c in cuts], dtype=float) for d in sig.mesh}
    local = {d: sig.sizes[d] / degrees[d] for d in sig.mesh}
    inputs, outputs = _slices_B(op, sig, sig.sizes.__getitem__, degrees)
    return work(op, sig, products, local, inputs, outputs, (len(cuts),), cluster)


def work(
    op: OpView,
    sig: Signature,
    products: int,
    local: Mapping[str, Array],
    inputs_B: Sequence[Array],
    outputs_B: Sequence[Array],
    shape: tuple[int, ...],
    cluster: Cluster,
) -> OperatorCosts:
    """As `evaluate`, from what one device works on: its slice of every dim (`local`) and the bytes of every tensor's slice,
    arrays of `shape`.
    """
    slices = sig.sizes[sig.rising] / local[sig.rising] if sig.rising else 1.0
    of = operator_kernels(op, sig, products, local, inputs_B, outputs_B, slices)
    nothing = np.zeros(shape)
    forward, backward = (
        sum((kernel.seconds(cluster) for kernel in kernels), nothing) for kernels in (of.forward, of.backward)
    )
    return OperatorCosts(forward, backward, nothing + of.flops)
