"""How many blocks each pipeline stage holds, and how many of them are computed again in the backward pass.

The blocks of a network stand in a chain, the embedding before and the head after them. A stage is a run of the chain. Its
time is the sum of its parts', and the slowest stage sets the pace of the pipeline, so the largest sum is made as small as
memory allows. On stage i of P, 1F1B keeps the activations of min(M, P - i) micro-batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A link of the chain: seconds of a micro-batch, forward and backward together, and of computing it again; bytes."""

    each_s: float
    again_s: float
    kept_B: float
    kept_recomputed_B: float
    at_rest_B: float
    is_block: bool = True


@dataclass(frozen=True)
class Stage:
    """What a stage holds: blocks, how many of them are recomputed; its seconds per micro-batch, and its bytes."""

    blocks: int
    recomputed: int
    each_s: float
    peak_B: float


def in_flight(stage: int, stages: int, micro_batch_num: int) -> int:
    """Micro-batches whose activations a stage keeps at once under 1F1B (Narayanan 2021)."""
    return min(micro_batch_num, stages - stage)


def divide(chain: Sequence[Part], stages: int, micro_batch_num: int, limit_B: float) -> tuple[Stage, ...] | None:
    """The stages with the smallest pace that fit `limit_B`; None if nothing fits.

    The pace is found by bisection: for a given one every stage takes as many parts as it can, first to last.
    """
    if stages == 1:
        return _filled(chain, 1, micro_batch_num, limit_B, float("inf"))
    low = max(max(p.each_s for p in chain), sum(p.each_s for p in chain) / stages)
    high = sum(p.each_s + p.again_s for p in chain)
    best = _filled(chain, stages, micro_batch_num, limit_B, high)
    if best is None:
        return None
    for _ in range(24):
        if high - low < 1e-6 * high:
            break
        middle = (low + high) / 2
        found = _filled(chain, stages, micro_batch_num, limit_B, middle)
        if found is None:
            low = middle
        else:
            best, high = found, max(s.each_s for s in found)
    return best


def _filled(
    chain: Sequence[Part], stages: int, micro_batch_num: int, limit_B: float, pace_s: float
) -> tuple[Stage, ...] | None:
    """Stages that take as much as `pace_s` and `limit_B` allow, and leave a block for every later one."""
    found: list[Stage] = []
    position = 0
    blocks_left = sum(p.is_block for p in chain)
    for stage in range(stages):
        later = stages - stage - 1
        best: tuple[Stage, int] | None = None
        taken: list[Part] = []
        for end in range(position + 1, len(chain) + 1):
            taken.append(chain[end - 1])
            inside = sum(p.is_block for p in taken)
            if blocks_left - inside < later:
                break
            one = _stage(taken, in_flight(stage, stages, micro_batch_num), limit_B, pace_s)
            if one is None:
                break
            if (later or end == len(chain)) and (inside or stages == 1):
                best = one, end
        if best is None:
            return None
        found.append(best[0])
        position = best[1]
        blocks_left -= best[0].blocks
    return tuple(found) if position == len(chain) else None


def _stage(parts: Sequence[Part], flight: int, limit_B: float, pace_s: float) -> Stage | None:
    """The stage of `parts` with as few recomputed blocks as fit; None if it does not fit or is too slow."""
    each_s = sum(p.each_s for p in parts)
    peak_B = sum(p.at_rest_B + flight * p.kept_B for p in parts)
    recomputed = 0
    blocks = [p for p in parts if p.is_block]
    for block in blocks:
        if peak_B <= limit_B:
            break
        each_s += block.again_s
        peak_B -= flight * (block.kept_B - block.kept_recomputed_B)
        recomputed += 1
    return Stage(len(blocks), recomputed, each_s, peak_B) if peak_B <= limit_B and each_s <= pace_s else None
