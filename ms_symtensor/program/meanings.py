"""What the operators of a graph mean: their signatures, and how MindSpore cuts those that were given no strategy."""

import math
from collections.abc import Mapping

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import OpView, Signature, view
from ms_symtensor.tensor.graph import Graph

Meanings = Mapping[str, tuple[OpView, Signature]]
"""View and signature of every operator of a graph, by name."""


def meanings(graph: Graph, rules: Mapping[str, Rule] | None = None) -> Meanings:
    """What the operators of `graph` mean; equal ones share their signature. UnknownOperatorError for one without."""
    found: dict[str, tuple[OpView, Signature]] = {}
    known: dict[tuple, Signature] = {}
    for op in graph.ops:
        seen = view(graph, op)
        if op.body is None:
            form = seen.type, seen.inputs, seen.outputs, seen.arguments, seen.positions, op.attributes
            if form not in known:
                known[form] = signature(seen, rules)
            found[op.name] = seen, known[form]
        else:
            found[op.name] = seen, signature(seen, rules)
    return found


def default_strategy(seen: OpView, sig: Signature, device_num: int) -> OpStrategy:
    """What MindSpore does with an operator that was given no strategy: the leading dim of every input cut by all devices,
    except a dim that it never cuts; by the greatest divisor that all these dims share with the number of devices.
    """
    leading = [bool(dims) and dims[0] not in sig.fixed for dims in sig.inputs]
    sizes = [t.shape[0] for t, is_cut in zip(seen.inputs, leading, strict=True) if is_cut]
    parts = math.gcd(device_num, *sizes)
    return OpStrategy(
        tuple(
            tuple(parts if i == 0 and is_cut else 1 for i in range(len(dims)))
            for dims, is_cut in zip(sig.inputs, leading, strict=True)
        )
    )
