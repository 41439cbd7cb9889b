"""What a module of a layer runs on one rank, as kernels: products, passes over memory, and others."""

from dataclasses import dataclass

from ms_symtensor.cost.kernel import Kernel, pass_s, product_s

_ITEM_B = 2
ATTENTION_BACKWARD = 2.5
"""Products of fused attention backward to those forward: five to two (arXiv 2205.14135, algorithm 4)."""


@dataclass(frozen=True)
class Module:
    """A module of a layer, on one rank."""

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    flops: float
    """Of its products forward, what a causal mask hides included."""


def module_of(
    products: list[tuple[float, float, float]], passes_B: list[float], others: "Module | None" = None
) -> Module:
    """Products of (rows, depth, columns), and passes over memory, which their gradients do twice."""
    forward = [product(rows * columns, depth, rows, columns) for rows, depth, columns in products]
    backward = []
    for rows, depth, columns in products:
        backward += [product(rows * depth, columns, rows, depth), product(depth * columns, rows, depth, columns)]
    moved = [Kernel(pass_s, {"traffic_B": size_B}) for size_B in passes_B if size_B]
    flops = sum(2 * rows * depth * columns for rows, depth, columns in products)
    twice = [Kernel(pass_s, {"traffic_B": 2 * size_B}) for size_B in passes_B if size_B]
    if others is not None:
        forward, backward, flops = [*forward, *others.forward], [*backward, *others.backward], flops + others.flops
    return Module((*forward, *moved), (*backward, *twice), flops)


def product(elements: float, depth: float, rows: float, columns: float) -> Kernel:
    traffic_B = _ITEM_B * (rows * depth + depth * columns + elements)
    return Kernel(product_s, {"elements": elements, "depth": depth, "flops": 2, "traffic_B": traffic_B})
