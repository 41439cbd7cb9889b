"""The price of a compiled program: the formulas of `cost`, applied to what MindSpore's graph says, operator by operator.

It prices programs whose strategies are not known (MindSpore's own searches) on the same footing as ours: collectives by their
ranks and bytes, products by their multiply-adds or bytes, everything else by the bytes it reads and writes.
"""

import math

from ms_symtensor.bridge.compiled.collectives import CompiledCollective, collectives
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import local_time_s
from ms_symtensor.cost.operator import ATTENTION_BACKWARD, evaluate
from ms_symtensor.cost.parameter import STATES_B
from ms_symtensor.cost.step import TIMES
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import OpView
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Constant, TensorType, flat

_ATTENTION, _ATTENTION_GRADIENT = "FlashAttentionScore", "FlashAttentionScoreGrad"
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", _ATTENTION})


def compiled_time_s(program: CompiledProgram, cluster: Cluster) -> dict[str, float]:
    """Seconds of one training step of `program` by what they are spent on, see `cost.step.TIMES`."""
    time = dict.fromkeys(TIMES, 0.0)
    by_name = {c.name: c for c in collectives(program)}
    attention: dict[TensorType, float] = {}
    for node in program.nodes:
        found = by_name.get(node.name)
        if found is not None:
            seconds = collective_time_s(cluster, found.kind, found.ranks, max(found.input_B, found.output_B))
            time[_purpose(found)] += seconds + cluster.device.collective_s
            continue
        inputs = tuple(t for s in flat(node.inputs) if (t := program.type_of(s)) is not None)
        if node.type in _PRODUCTS:
            seconds = _product_s(node, inputs, cluster)
            if node.type == _ATTENTION:
                attention[inputs[0]] = seconds
        elif node.type == _ATTENTION_GRADIENT and inputs[0] in attention:
            seconds = ATTENTION_BACKWARD * attention[inputs[0]]
        else:
            seconds = local_time_s(cluster, node.type, sum(t.size_B for t in (*inputs, *node.outputs)))
        time["compute"] += seconds
    for parameter in program.layouts:
        elements = math.prod(parameter.slice_type.shape)
        traffic = elements * (2 * (size_B(parameter.slice_type.dtype) + STATES_B) + size_B("float32"))
        time["optimizer"] += local_time_s(cluster, "AdamWeightDecay", traffic)
    return time


def _purpose(found: CompiledCollective) -> str:
    of_gradient = found.backward and ("mirror" in found.instance or "parallel_optimizer" in found.instance)
    return "synchronisation" if of_gradient else "communication"


def _product_s(node: Node, inputs: tuple[TensorType, ...], cluster: Cluster) -> float:
    """The forward time of a product at its local shapes, uncut."""
    constants = tuple(s.value for s in node.inputs if isinstance(s, Constant) and s.tensor is None)
    positions = tuple(i for i, s in enumerate(node.inputs) if not (isinstance(s, Constant) and s.tensor is None))
    seen = OpView(node.type, node.name, inputs, node.outputs, constants, dict(node.attributes), positions)
    return float(evaluate(seen, signature(seen), 1, [{}], cluster).forward_s[0])
