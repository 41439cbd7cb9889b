"""The order of gathers that `computation_allgather_overlap` asks for: one after the other, as their weights are first used.

MindSpore 2.10, frontend/parallel/pass/overlap_param_gather.cc: every gather of a weight waits for the one before, and the first
reader of the first gather for the last one.
"""

from itertools import pairwise

from ms_symtensor.program.program import Phase, Program, Role

Pair = tuple[str, str]
"""The parameters of two gathers, or a parameter and a reader (`reader_of`): the second waits for the first."""


def gather_order(program: Program) -> tuple[Pair, ...]:
    """What waits for what of the forward pass's gathers of sharded weights."""
    gathered = [
        node.parameter or ""
        for node in program.nodes
        if node.kind == "AllGather" and node.role is Role.WEIGHT and node.phase is Phase.FORWARD
    ]
    if not gathered:
        return ()
    return (*pairwise(gathered), (gathered[-1], reader_of(gathered[0])))


def reader_of(parameter: str) -> str:
    """What stands in a pair for the first reader of the gather of `parameter`."""
    return f"the reader of {parameter}"
