"""`partition(graph, plan)`: the program that MindSpore's compiler will write for every rank."""

from collections.abc import Mapping

from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.backward import backward
from ms_symtensor.program.forward import forward
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.graph import Graph


def partition(graph: Graph, plan: StagePlan, rules: Mapping[str, Rule] | None = None) -> Program:
    """The training program of one step of `graph` under `plan`, optimizer update left out.

    Errors: UnknownOperatorError, InvalidStrategyError (naming the operator).
    """
    half = forward(graph, plan, rules)
    backward(half, plan.settings)
    built = half.builder
    return Program(
        plan.settings.device_num, tuple(built.tensors), tuple(built.nodes), half.parameters, frozenset(built.kept)
    )
