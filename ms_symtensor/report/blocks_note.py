"""How many blocks and micro-batches of a plan are compiled to verify it, in a line."""

from typing import Any

from ms_symtensor.bridge.judge.fewer_blocks import FewerBlocks
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

MANY = 64
"""Blocks of a stage, in all micro-batches, that MindSpore compiles for more than a minute on two cores; empirical."""


def blocks_note(plan: Plan, graph: Graph | None) -> str:
    """What to do where there is much to compile, else nothing."""
    layers = 0 if graph is None else len(graph.blocks)
    if layers * plan.micro_batch_num <= MANY * plan.pipeline_stages or "model" not in plan.source:
        return ""
    batches = f" of {plan.micro_batch_num} micro-batches" if plan.micro_batch_num > 1 else ""
    return f"compiling all {layers} blocks{batches} takes minutes; with --blocks 2 two of every run of equal ones are compiled"


def fewer_blocks_note(plan: Plan, fewer: FewerBlocks) -> str:
    """What is compiled of `plan`."""
    batches = ""
    if fewer.plan.micro_batch_num < plan.micro_batch_num:
        batches = f", {fewer.plan.micro_batch_num} of {plan.micro_batch_num} micro-batches"
    return f"compiled: {len(fewer.kept)} of {fewer.layer_num} blocks{batches}; the others repeat these"


def fewer_blocks_json(plan: Plan, fewer: FewerBlocks) -> dict[str, Any]:
    """`blocks` and `micro_batch_num` of the program that is compared, and of the plan."""
    return {
        "blocks": {"compiled": len(fewer.kept), "planned": fewer.layer_num},
        "micro_batch_num": {"compiled": fewer.plan.micro_batch_num, "planned": plan.micro_batch_num},
    }
