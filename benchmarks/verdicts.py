"""What MindSpore's compiler says of a plan of the zoo, with few of its blocks."""

from collections.abc import Sequence
from typing import Any

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


def judgement(found: Sequence[Verdict]) -> dict[str, Any]:
    """How many ranks were compiled, in how many seconds, how many collectives they have, and what is wrong in a few words: a plan
    that is rejected, a rank that differs from the prediction, a gradient that is not summed.
    """
    compared = [v.comparison for v in found if v.comparison is not None]
    wrong = [f"rank {v.rank}: {v.reason or 'differs'}"[:300] for v in found if not v.passed]
    wrong += [
        f"rank {v.rank}: {text}" for v in found if v.comparison is not None for text in v.comparison.differences[:2]
    ]
    wrong += [f"rank {v.rank}: {name} is not summed" for v in found for name in v.unsynchronised[:2]]
    return {
        "ranks": len(found), "wrong": wrong, "collectives": sum(one.compiled_collectives for one in compared),
        "seconds": round(sum(v.compile_time_s for v in found), 1),
    }  # fmt: skip


def judged(plan: Plan, blocks: int = BLOCKS) -> dict[str, Any]:
    """The judgement of a plan, with at most so many `blocks` of every run of equal ones."""
    return judgement(verdicts(plan, blocks))
