"""Cells with a backward pass of their own (`bprop`): what a strategy must not do to them."""

from collections.abc import Mapping

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.forward import forward
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.program import COLLECTIVES, Role
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.graph import BPROP, Graph


def require_slices_as_they_come(graph: Graph, plan: StagePlan, rules: Mapping[str, Rule] | None = None) -> None:
    """InvalidStrategyError where `plan` exchanges slices inside a cell of `graph` with its own backward pass.

    MindSpore differentiates nothing in there, so that the exchange would have no way back: wrong gradients.
    """
    if not graph.custom_backward:
        return
    for node in forward(graph, plan, meanings(graph, rules)).builder.nodes:
        if node.op in graph.custom_backward and node.role is Role.MOVE and node.kind in COLLECTIVES:
            cell = graph.op_by_name[node.op].attribute(BPROP)
            raise InvalidStrategyError(
                f"{node.op} would exchange slices ({node.kind}) inside {cell}, whose backward pass the user wrote (bprop):"
                f" its gradients would be wrong; lay the operators of {cell} out like what goes in (--fix"
                f' "*{str(cell).rpartition(".")[2]}*=...")'
            )
