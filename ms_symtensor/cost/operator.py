"""What one operator costs on one device, as formulas over its dims N_d, its cut degrees c_d and the device.

Work on the cube unit is bound by multiply-adds or by memory traffic, whichever takes longer; work on the vector unit by
memory traffic; every operator that moves data has a fixed cost t_op on top:

    T = max(paid / (η_cube F_cube), bytes / (η_hbm B_hbm)) + t_op

(roofline model, Williams, Waterman and Patterson 2009). A product of few elements leaves cores idle, and one with a short
summed dim spends its time filling their pipelines, so that it pays for more than it computes:

    paid = FLOPs per point · (elements of the result + E_wave) · (length of the summed dim + K_fill)

Fused attention pays for its FLOPs at its own efficiency η_att; softmax beside the products takes the vector unit as long for a
narrow head as for a wide one, so that heads narrower than D_att pay for those of D_att. Under a causal mask the last of c slices
of the sequence sees (2c - 1)/c times as much as the average one, and the others wait for it at the next collective. The backward
pass of a product computes another product per input with a gradient, whose elements are those of the input, with as many FLOPs:
the gradient of a narrow weight has few elements, each a long sum. Where an operand was broadcast, it is computed for every matrix
of the result, and a pass over memory sums that up. That of other operators reads the incoming gradient and what
was kept, and writes the gradients of its inputs, unless the incoming gradient is passed on as it is (Add).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from ms_symtensor.algebra import symbols as s
from ms_symtensor.algebra.expression import Compiled, compile_expression
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.ops.signature import Dims, OpView, Signature, Unit
from ms_symtensor.program.gradients import passes_on
from ms_symtensor.program.scratch import before_sum
from ms_symtensor.tensor.dtype import has_gradients, size_B
from ms_symtensor.tensor.graph import TensorType

Array = NDArray[np.float64]


def dim_size(name: str) -> sympy.Symbol:
    """N_<dim>: elements of a dim of the whole tensor."""
    return s.symbol(f"N_{name}", "1", f"size of dim {name}", rf"N_{{{name}}}", positive=True, integer=True)


def cut_degree(name: str) -> sympy.Symbol:
    """c_<dim>: into how many slices a dim is cut."""
    return s.symbol(f"c_{name}", "1", f"slices of dim {name}", rf"c_{{{name}}}", positive=True, integer=True)


@dataclass(frozen=True)
class OperatorFormulas:
    """Formulas of one operator at its rank and element types: seconds, FLOPs and bytes on one device.

    `forward_s`, `backward_s`: time of its own work; `forward_flops`: multiply-adds times two; `inputs_B`, `outputs_B`: bytes
    of the slices of every tensor.
    """

    forward_s: sympy.Expr
    backward_s: sympy.Expr
    forward_flops: sympy.Expr
    inputs_B: tuple[sympy.Expr, ...]
    outputs_B: tuple[sympy.Expr, ...]


def operator_formulas(op: OpView, sig: Signature, products: int) -> OperatorFormulas:
    """Formulas of `op`; `products` is how many of its inputs have a gradient that it computes (0: no backward pass)."""
    zero = sympy.Integer(0)
    inputs = tuple(_bytes(t, d, sig) for t, d in zip(op.inputs, sig.inputs, strict=True))
    outputs = tuple(_bytes(t, d, sig) for t, d in zip(op.outputs, sig.outputs, strict=False))
    traffic = sum(inputs, zero) + sum(outputs, zero)
    if sig.unit is Unit.NONE:
        return OperatorFormulas(zero, zero, zero, inputs, outputs)
    memory_s = traffic / (s.eta_hbm * s.B_hbm)
    gradients = gradients_of(op, sig, products)
    back = gradients.moved_B(inputs, outputs, zero)
    backward = back / (s.eta_hbm * s.B_hbm) + s.t_op if gradients.passes else zero
    if sig.unit is Unit.CUBE:
        local = {d: dim_size(d) / cut_degree(d) for d in sig.mesh}
        points = sympy.Mul(*local.values())
        flops = sympy.Float(sig.flops_per_point) * points
        peak = s.F_cube32 if op.inputs[0].dtype == "float32" else s.F_cube
        summed = summed_dims(sig)
        slices = cut_degree(sig.rising) if sig.rising else 1
        held_up = sympy.Max(1, s.D_att / sig.head_dim, evaluate=False) if sig.head_dim else sympy.Integer(1)
        paid = held_up * paid_flops(sig, local, s.E_wave, s.K_fill, slices)

        def takes_s(paid: Any) -> Any:
            return sympy.Max(paid / ((s.eta_cube if summed else s.eta_att) * peak), memory_s, evaluate=False) + s.t_op

        backward += gradients.forwards * takes_s(paid)
        for i, dims in zip(gradients.operands, gradients.computed, strict=True):
            element_B = size_B(op.inputs[i].dtype)
            elements = inputs[i] / element_B
            if dims is not None:
                elements = sympy.Mul(*(local[d] for d in dims))
                backward += (elements * element_B + inputs[i]) / (s.eta_hbm * s.B_hbm) + s.t_op
            backward += takes_s(paid_product(sig, elements, points, s.E_wave, s.K_fill))
        return OperatorFormulas(takes_s(paid), backward, flops, inputs, outputs)
    return OperatorFormulas(memory_s + s.t_op, backward, zero, inputs, outputs)


def summed_dims(sig: Signature) -> tuple[str, ...]:
    """The dims that a product sums over; none for fused attention, which sums inside. Tensors do not name a dim of size 1."""
    return tuple(d for d in sig.mesh if d not in sig.outputs[0] and sig.sizes[d] > 1)


def paid_flops(
    sig: Signature, local: Mapping[str, Any], wave_elements: Any, pipeline_depth: Any, slices: Any = 1
) -> Any:
    """The FLOPs that an operator of the cube unit takes the time of on the slowest device, from its slice of every dim and the
    `slices` of a dim with rising work: numbers, arrays or symbols.
    """
    summed = summed_dims(sig)
    elements = math.prod(local[d] for d in sig.mesh if d not in summed)
    if not summed:
        return sig.flops_per_point * elements * (2 - 1 / slices if sig.rising else 1)
    points = elements * math.prod(local[d] for d in summed)
    return paid_product(sig, elements, points, wave_elements, pipeline_depth)


def paid_product(sig: Signature, elements: Any, points: Any, wave_elements: Any, pipeline_depth: Any) -> Any:
    """Those of a product whose result has so many elements, of `points` multiply-adds in all."""
    return (elements + wave_elements) * (points / elements + pipeline_depth) * sig.flops_per_point


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

    def moved_B(self, inputs_B: Sequence[Any], outputs_B: Sequence[Any], nothing: Any) -> Any:
        """Bytes of that pass, from those of the tensors: numbers, arrays or formulas; `nothing` is the sum of none."""
        read = (*(inputs_B[i] for i in self.reads), *(outputs_B[i] for i in (*self.kept, *self.arriving)))
        return sum((*read, *(inputs_B[i] for i in self.passes)), nothing)


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
        summed = summed_dims(sig)
        if not summed:
            return Gradients(forwards=ATTENTION_BACKWARD)
        operands = tuple(i for i in chosen if any(d in sig.inputs[i] for d in summed))
        dims = tuple(_computed_dims(op, sig, i) for i in operands)
        return Gradients(operands, dims, passes=tuple(i for i in chosen if i not in operands), arriving=arriving)
    kept = () if chosen == [sig.linear] else tuple(i for i in sig.keeps_outputs if i < len(sig.outputs))
    return Gradients(passes=tuple(chosen), reads=sig.keeps_inputs, kept=kept, arriving=arriving)


def _computed_dims(op: OpView, sig: Signature, position: int) -> frozenset[str] | None:
    """The dims of the gradient of a product's operand, before it is summed over those along which the operand was broadcast."""
    shape = op.inputs[position].shape
    if before_sum(op.type, shape, op.outputs[0].shape) == shape:
        return None
    return frozenset(d for d in (*sig.outputs[0][:-2], *sig.inputs[position]) if d is not None)


def _bytes(tensor: TensorType, dims: Dims, sig: Signature) -> sympy.Expr:
    """Bytes of one device's slice of `tensor`."""
    factors: list[sympy.Expr] = [sympy.Integer(size_B(tensor.dtype))]
    for size, dim in zip(tensor.shape, dims, strict=True):
        whole = dim_size(dim) if dim is not None and sig.sizes[dim] == size else sympy.Integer(size)
        factors.append(whole / cut_degree(dim) if dim is not None else whole)
    return sympy.Mul(*factors)


@dataclass(frozen=True)
class OperatorCosts:
    """The formulas' values for a row of candidates, one entry each: seconds and FLOPs."""

    forward_s: Array
    backward_s: Array
    forward_flops: Array


ATTENTION_BACKWARD = 2.5
"""Five products backward to two forward, in one kernel whichever gradients are wanted (FlashAttention-2, arXiv 2307.08691,
section 4.1).
"""

_FLOPS = s.symbol("W", "FLOP", "floating-point operations that one device pays for", "W")
_BYTES = s.symbol("Q", "B", "bytes that an operator reads and writes", "Q", nonnegative=True)
_DEVICE = (s.F_cube, s.F_cube32, s.eta_cube, s.eta_att, s.B_hbm, s.eta_hbm, s.t_op)


def evaluate(
    op: OpView, sig: Signature, products: int, cuts: Sequence[Mapping[str, int]], cluster: Cluster
) -> OperatorCosts:
    """Values of `operator_formulas(op, sig, products)` for every candidate in `cuts` (slices per dim, missing: 1).

    The formulas are one roofline over FLOPs and bytes; these are products of sizes over cuts, so that the roofline is
    compiled once for all operators, and only they are evaluated per operator.
    """
    degrees = {d: np.array([c.get(d, 1) for c in cuts], dtype=float) for d in sig.mesh}
    nothing = np.zeros(len(cuts))
    local = {d: sig.sizes[d] / degrees[d] for d in sig.mesh}
    inputs = [nothing + _slice_B(t, d, degrees) for t, d in zip(op.inputs, sig.inputs, strict=True)]
    outputs = [nothing + _slice_B(t, d, degrees) for t, d in zip(op.outputs, sig.outputs, strict=False)]
    return work(op, sig, products, local, inputs, outputs, nothing.shape, cluster)


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
    nothing = np.zeros(shape)
    if sig.unit is Unit.NONE:
        return OperatorCosts(nothing, nothing, nothing)
    points = paid = nothing
    device = cluster.device
    if sig.unit is Unit.CUBE:
        points = np.prod([np.broadcast_to(n, shape) for n in local.values()], axis=0)
        slices = sig.sizes[sig.rising] / local[sig.rising] if sig.rising else 1.0
        held_up = max(1.0, device.attention_head_dim / sig.head_dim) if sig.head_dim else 1.0
        paid = nothing + held_up * paid_flops(sig, local, device.wave_elements, device.pipeline_depth, slices)
    traffic = nothing + sum(inputs_B) + sum(outputs_B)
    fused = sig.unit is Unit.CUBE and not summed_dims(sig)
    forward = roofline(paid, traffic, op.inputs[0].dtype if op.inputs else "", cluster, fused)
    gradients = gradients_of(op, sig, products)
    backward = nothing + gradients.forwards * forward
    for i, dims in zip(gradients.operands, gradients.computed, strict=True):
        element_B = size_B(op.inputs[i].dtype)
        elements = inputs_B[i] / element_B
        if dims is not None:
            elements = math.prod((local[d] for d in dims), start=nothing + 1)
            backward = backward + roofline(nothing, elements * element_B + inputs_B[i], "", cluster)
        paid = paid_product(sig, elements, points, device.wave_elements, device.pipeline_depth)
        backward = backward + roofline(paid, traffic, op.inputs[0].dtype, cluster)
    if gradients.passes:
        backward = backward + roofline(nothing, gradients.moved_B(inputs_B, outputs_B, nothing), "", cluster)
    return OperatorCosts(forward, backward, sig.flops_per_point * points)


def _slice_B(tensor: TensorType, dims: Dims, degrees: Mapping[str, Array]) -> Array | float:
    """Bytes of one device's slice of `tensor` for every candidate."""
    size: Array | float = float(tensor.size_B)
    for dim in dims:
        if dim is not None:
            size = size / degrees[dim]
    return size


def roofline(paid: Array, bytes_: Array, dtype: str, cluster: Cluster, fused: bool = False) -> Array:
    """Seconds of work that pays for so many FLOPs (of fused attention if `fused`) and moves so many bytes."""
    device = {symbol.name: cluster.values[symbol] for symbol in _DEVICE}
    seconds: Array = _compiled_roofline(dtype == "float32", fused)(W=paid, Q=bytes_, **device)
    return seconds


@lru_cache(maxsize=4)
def _compiled_roofline(in_float32: bool, fused: bool) -> Compiled:
    peak = (s.eta_att if fused else s.eta_cube) * (s.F_cube32 if in_float32 else s.F_cube)
    expression = sympy.Max(_FLOPS / peak, _BYTES / (s.eta_hbm * s.B_hbm), evaluate=False) + s.t_op
    return compile_expression(expression, [_FLOPS, _BYTES, *_DEVICE])
