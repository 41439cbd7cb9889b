"""What one operator costs on one device, as formulas over its dims N_d, its cut degrees c_d and the device.

Work on the cube unit is bound by multiply-adds or by memory traffic, whichever takes longer; work on the vector unit by
memory traffic; every operator that moves data has a fixed cost t_op on top:

    T = max(FLOPs / (η_cube F_cube), bytes / (η_hbm B_hbm)) + t_op

(roofline model, Williams, Waterman and Patterson 2009). The backward pass of a product computes one product of the same
size per input with a gradient; that of other operators reads the incoming gradient and what was kept, and writes the
gradients of its inputs, unless the incoming gradient is passed on as it is (Add).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import sympy
from numpy.typing import NDArray

from ms_symtensor.algebra import symbols as s
from ms_symtensor.algebra.expression import compile_expression
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.ops.signature import Dims, OpView, Signature, Unit
from ms_symtensor.program.backward import PASSED_ON
from ms_symtensor.tensor.dtype import size_B
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
    """Formulas of `op`; `products` is how many of its inputs need a gradient (0: no backward pass)."""
    inputs = tuple(_bytes(t, d, sig) for t, d in zip(op.inputs, sig.inputs, strict=True))
    outputs = tuple(_bytes(t, d, sig) for t, d in zip(op.outputs, sig.outputs, strict=False))
    traffic = sum(inputs, sympy.Integer(0)) + sum(outputs, sympy.Integer(0))
    if sig.unit is Unit.NONE:
        zero = sympy.Integer(0)
        return OperatorFormulas(zero, zero, zero, inputs, outputs)
    memory_s = traffic / (s.eta_hbm * s.B_hbm)
    if sig.unit is Unit.CUBE:
        points = sympy.Mul(*(dim_size(d) / cut_degree(d) for d in sig.mesh))
        flops = sympy.Float(sig.flops_per_point) * points
        peak = s.F_cube32 if op.inputs[0].dtype == "float32" else s.F_cube
        forward = sympy.Max(flops / (s.eta_cube * peak), memory_s, evaluate=False) + s.t_op
        return OperatorFormulas(forward, products * forward, flops, inputs, outputs)
    if op.type in PASSED_ON:
        return OperatorFormulas(memory_s + s.t_op, sympy.Integer(0), sympy.Integer(0), inputs, outputs)
    kept = [inputs[i] for i in sig.keeps_inputs] + [outputs[i] for i in sig.keeps_outputs if i < len(outputs)]
    back = sum(kept, sympy.Integer(0)) + (outputs[0] if outputs else sympy.Integer(0)) + products * _largest(inputs)
    backward = back / (s.eta_hbm * s.B_hbm) + s.t_op if products else sympy.Integer(0)
    return OperatorFormulas(memory_s + s.t_op, backward, sympy.Integer(0), inputs, outputs)


def _largest(sizes: Sequence[sympy.Expr]) -> sympy.Expr:
    return sizes[0] if len(sizes) == 1 else sympy.Max(*sizes, evaluate=False) if sizes else sympy.Integer(0)


def _bytes(tensor: TensorType, dims: Dims, sig: Signature) -> sympy.Expr:
    """Bytes of one device's slice of `tensor`."""
    factors: list[sympy.Expr] = [sympy.Integer(size_B(tensor.dtype))]
    for size, dim in zip(tensor.shape, dims, strict=True):
        whole = dim_size(dim) if dim is not None and sig.sizes[dim] == size else sympy.Integer(size)
        factors.append(whole / cut_degree(dim) if dim is not None else whole)
    return sympy.Mul(*factors)


@dataclass(frozen=True)
class OperatorCosts:
    """The formulas' values for a row of candidates, one entry each: seconds, FLOPs, bytes of every tensor's slice."""

    forward_s: Array
    backward_s: Array
    forward_flops: Array


def evaluate(
    formulas: OperatorFormulas, sig: Signature, cuts: Sequence[Mapping[str, int]], cluster: Cluster
) -> OperatorCosts:
    """Values of `formulas` for every candidate in `cuts` (slices per dim, missing: 1) on `cluster`."""
    names = [dim_size(d) for d in sig.mesh] + [cut_degree(d) for d in sig.mesh]
    names += sorted(cluster.values, key=lambda x: x.name)
    function = _compiled(formulas, tuple(names))
    arguments: dict[str, object] = dict(cluster.arguments)
    for dim in sig.mesh:
        arguments[dim_size(dim).name] = float(sig.sizes[dim])
        arguments[cut_degree(dim).name] = np.array([c.get(dim, 1) for c in cuts], dtype=float)
    values = function(**arguments)
    full = {key: np.broadcast_to(np.asarray(v, dtype=float), (len(cuts),)) for key, v in values.items()}
    return OperatorCosts(full["forward_s"], full["backward_s"], full["forward_flops"])


@lru_cache(maxsize=1024)
def _compiled(formulas: OperatorFormulas, names: tuple[sympy.Symbol, ...]):  # type: ignore[no-untyped-def] # a compiled formula
    wanted = {
        "forward_s": formulas.forward_s, "backward_s": formulas.backward_s, "forward_flops": formulas.forward_flops,
    }  # fmt: skip
    return compile_expression(wanted, names)
