"""What MindSpore's compiler says of a plan of the zoo, with few of its blocks."""

from ms_symtensor.bridge.judge.fewer_blocks import fewer_blocks
from ms_symtensor.bridge.judge.verify import Verdict, verify
from ms_symtensor.bridge.judge.verify_stages import verify_stages
from ms_symtensor.strategy.plan import Plan

BLOCKS = 2
"""Of every run of equal ones on a stage: one takes from another, as everywhere in the run."""


def verdicts(plan: Plan, blocks: int) -> tuple[Verdict, ...]:
    """On one rank of every stage, with at most so many `blocks` of every run of equal ones."""
    fewer = fewer_blocks(plan, blocks)
    if fewer.plan.pipeline is not None:
        return verify_stages(fewer.plan, fewer.graph)
    return (verify(fewer.plan, fewer.graph, plan.device_num // 2),)
