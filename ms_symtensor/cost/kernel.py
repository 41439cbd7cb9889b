"""What one kernel takes on a device: a formula for each kind of kernel, which people read and arrays are put into.

Every kernel is bound by the slower of its arithmetic and its memory traffic, and has a fixed cost t_op (roofline model,
Williams, Waterman and Patterson 2009):

    T = max(work / rate, traffic / bandwidth) + t_op

- `pass_s`     reads and writes Q bytes, and computes little.
- `vector_s`   does so, with O operations of the vector unit in float32 (softmax, SiLU), which works as fast in 16 bit.
- `product_s`  a result of E elements, each a sum of K products, on the matrix unit.
- `attention_s`  fused attention: R queries, each with S keys.
            These three may read C bytes more that were read last a whole pass ago (serving's weights and cache).
- `copy_s`     moves Q bytes between device and host.

A formula is a function of numbers of the kernel, in symbols or as expressions over dims: `Kernel.expression` is what `explain`
prints, `Kernel.seconds` the same compiled (`algebra.expression`), for arrays of candidates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from ms_symtensor.algebra import symbols as s
from ms_symtensor.algebra.expression import Compiled, compile_expression
from ms_symtensor.algebra.named import Named, expanded
from ms_symtensor.cluster.topology import Cluster

Array = NDArray[np.float64]
KernelFormula = Callable[..., sympy.Expr]

LEAST_PART = 4
"""Of a sum that is cut, a part is as long as so many times what fills the pipeline, so that filling takes a fifth of its time at
most (empirical: split-K of CUTLASS and catlass leaves sums of a few hundred whole).
"""

_ARGUMENTS = (
    s.symbol("traffic_B", "B", "bytes that a kernel reads and writes", "Q", nonnegative=True),
    s.symbol("cold_B", "B", "bytes that no operator before has left in the L2 cache", "C", nonnegative=True),
    s.symbol("operations", "1", "operations of the vector unit", "O", nonnegative=True),
    s.symbol("elements", "1", "elements of a product's result on one device", "E"),
    s.symbol("depth", "1", "length of the sums of a product on one device", "K"),
    s.symbol("flops", "FLOP", "floating-point operations of one term of a sum", "W"),
    s.symbol("rows", "1", "queries of all heads on one device", "R"),
    s.symbol("keys", "1", "keys that a query meets", "S"),
    s.symbol("head_dim", "1", "size of a head", "D"),
)


class memory(Named):
    """Bytes whose time HBM takes for Q bytes: fewer where all of them fit into the L2 cache, g_L2 times as fast, in which the
    operator before has left what is read.
    """

    title = "Q"

    @classmethod
    def definition(cls, traffic_B: sympy.Expr) -> sympy.Expr:
        return traffic_B / sympy.Piecewise((s.g_L2, traffic_B <= s.L2), (1, True))


class paid(Named):
    """Multiply-adds whose time a product of E elements takes, each a sum of K: few elements leave cores idle, and a short sum
    spends its time filling their pipelines. Where the result is smaller than a wave, its sums are cut into parts, as many as the
    wave has room for and each long enough.
    """

    title = "E, K"

    @classmethod
    def definition(cls, elements: sympy.Expr, depth: sympy.Expr) -> sympy.Expr:
        shortest = sympy.Max(1, LEAST_PART * s.K_fill, evaluate=False)
        parts = sympy.Max(1, sympy.Min(s.E_wave / elements, depth / shortest, evaluate=False), evaluate=False)
        return (elements * parts + s.E_wave) * (depth / parts + s.K_fill)


def pass_s(traffic_B: Any) -> sympy.Expr:
    """Seconds of a pass over memory."""
    return memory(traffic_B) / (s.eta_hbm * s.B_hbm) + s.t_op


def vector_s(traffic_B: Any, operations: Any, cold_B: Any = 0) -> sympy.Expr:
    """Seconds of a pass over memory with so many operations, in float32 whatever the tensors' type: half as many at once as F_vec
    counts; `cold_B` as of `product_s`: a state.
    """
    rate = s.eta_vec * s.F_vec / 2
    return sympy.Max(operations / rate, (memory(traffic_B) + cold_B) / (s.eta_hbm * s.B_hbm), evaluate=False) + s.t_op


def product_s(elements: Any, depth: Any, flops: Any, traffic_B: Any, cold_B: Any = 0) -> sympy.Expr:
    """Seconds of a product in 16 bit, `flops` FLOPs a term of a sum; `cold_B` bytes come from HBM whatever the L2 cache has room
    for. See `_product_s`.
    """
    return _product_s(s.eta_cube * s.F_cube, elements, depth, flops, traffic_B, cold_B)


def product_float32_s(elements: Any, depth: Any, flops: Any, traffic_B: Any) -> sympy.Expr:
    """As `product_s`, in float32."""
    return _product_s(s.eta_cube32 * s.F_cube32, elements, depth, flops, traffic_B)


def _product_s(rate: sympy.Expr, elements: Any, depth: Any, flops: Any, traffic_B: Any, cold_B: Any = 0) -> sympy.Expr:
    """Beside the other work of a training step a share eta_step of the rate is kept."""
    work_s = flops * paid(elements, depth) / (s.eta_step * rate)
    return sympy.Max(work_s, (memory(traffic_B) + cold_B) / (s.eta_read * s.B_hbm), evaluate=False) + s.t_op


def attention_s(rows: Any, keys: Any, head_dim: Any, traffic_B: Any, cold_B: Any = 0) -> sympy.Expr:
    """Seconds of fused attention forward in 16 bit; `cold_B` as of `product_s`: a cache. See `_attention_s`."""
    return _attention_s(s.F_cube, rows, keys, head_dim, traffic_B, cold_B)


def attention_float32_s(rows: Any, keys: Any, head_dim: Any, traffic_B: Any) -> sympy.Expr:
    """As `attention_s`, in float32."""
    return _attention_s(s.F_cube32, rows, keys, head_dim, traffic_B)


def _attention_s(peak: sympy.Expr, rows: Any, keys: Any, head_dim: Any, traffic_B: Any, cold_B: Any = 0) -> sympy.Expr:
    """Two products with softmax between them, at an efficiency of their own; softmax takes the vector unit as long for a narrow
    head as for one of D_att. Cores take tiles of rows: of the last R_wave, a tile for each core, half have none on average; and
    each core computes S_fill keys ahead, once, before softmax and the second product have work.
    """
    width = sympy.Max(head_dim, s.D_att, evaluate=False)
    flops = 4 * width * ((rows + s.R_wave / 2) * keys + s.R_wave * s.S_fill)
    read_s = (memory(traffic_B) + cold_B) / (s.eta_read * s.B_hbm)
    return sympy.Max(flops / (s.eta_att * peak), read_s, evaluate=False) + s.t_op


def copy_s(traffic_B: Any) -> sympy.Expr:
    """Seconds of a copy between host and device memory."""
    return traffic_B / s.B_host + s.t_op


@dataclass(frozen=True)
class Kernel:
    """`times` kernels of the kind that `formula` prices, with its arguments by name: numbers, arrays or expressions."""

    formula: KernelFormula
    arguments: Mapping[str, Any]
    times: float = 1

    @property
    def expression(self) -> sympy.Expr:
        """Seconds, in the symbols of the arguments and of the device."""
        return self.times * self.formula(**self.arguments)

    def seconds(self, cluster: Cluster) -> Any:
        """Seconds on a device of `cluster`: numbers, or arrays in the shape of the arguments'."""
        return self.times * compiled(self.formula, cluster, *self.arguments)(**self.arguments)


def compiled(formula: KernelFormula, cluster: Cluster, *names: str) -> Compiled:
    """`formula` as a function of the arguments called `names`, numbers or arrays, with the constants of `cluster`."""
    of, constants = _compiled(formula, frozenset(names))
    return partial(of, **{name: cluster.arguments[name] for name in constants})


@lru_cache
def _compiled(formula: KernelFormula, names: frozenset[str]) -> tuple[Compiled, tuple[str, ...]]:
    """The function of these arguments of the formula and of the constants that it returns the names of."""
    arguments = [symbol for symbol in _ARGUMENTS if symbol.name in names]
    expression = expanded(formula(**{symbol.name: symbol for symbol in arguments}))
    constants = sorted(expression.free_symbols - set(arguments), key=lambda symbol: symbol.name)
    return compile_expression(expression, [*arguments, *constants]), tuple(symbol.name for symbol in constants)
