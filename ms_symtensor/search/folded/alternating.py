"""Kinds of blocks that take turns: every period of them is one block for the search, which knows runs of equal blocks only.

Of A B A B A B, local and global attention or dense and sparse layers, every A B is one, and of six blocks three are left. What is
found for these is then written for the blocks as they are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, groupby

from ms_symtensor.errors import InputError
from ms_symtensor.program.recomputation import of_part, of_parts
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.constraints.limits import ALL, Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import JOINT, Graph


def merge_period(graph: Graph) -> Graph:
    """`graph` with the blocks of every period taken for one; itself where kinds of blocks do not take turns, or in no periods
    that leave runs of equal ones.
    """
    names = graph.blocks
    number = {name: kind for kind, alike in enumerate(fold(graph).kinds) for name in alike}
    kinds = [number.get(name, len(names) + place) for place, name in enumerate(names)]
    parts: list[tuple[str, ...]] = [(name,) for name in names]
    while not _is_in_runs(kinds):
        period = _period(kinds)
        if period is None:
            return graph
        start, length, times = period
        end = start + length * times
        parts[start:end] = [tuple(chain(*parts[n : n + length])) for n in range(start, end, length)]
        kinds[start:end] = [max(kinds) + 1] * times
    block_of = {name: JOINT.join(together) for together in parts if len(together) > 1 for name in together}
    if not block_of:
        return graph
    ops = (replace(op, block=block_of[op.block], part=op.block) if op.block in block_of else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def _is_in_runs(kinds: Sequence[int]) -> bool:
    """Whether all of a kind stand together."""
    return len(list(groupby(kinds))) == len({*kinds})


def _period(kinds: Sequence[int]) -> tuple[int, int, int] | None:
    """Where a period of several kinds begins, how long it is and how often it stands there in a row: of all that which most
    blocks are in, of such the shortest, of such the first.
    """
    found: list[tuple[int, int, int, int]] = []
    for length in range(2, len(kinds) // 2 + 1):
        for start in range(len(kinds) - 2 * length + 1):
            once, times = kinds[start : start + length], 1
            while kinds[start + times * length : start + (times + 1) * length] == once:
                times += 1
            if times > 1 and len({*once}) > 1:
                found.append((-length * times, length, start, times))
    if not found:
        return None
    _, length, start, times = min(found)
    return start, length, times


def merged_request(request: Request, together: Graph) -> Request:
    """`request` on the blocks of a network, for `together`, where periods of them are taken for one.

    InputError for a number of recomputed blocks that is none of whole periods.
    """
    limits = request.limits
    if longest(together) == 1 or not limits.names("recompute"):
        return request
    sizes = (len(name.split(JOINT)) for names in fold(together).kinds for name in names)
    ends = [*accumulate(sizes, initial=0)]
    least, most = limits.least.get("recompute", 0), limits.most.get("recompute", ALL)
    if ends[-1] < least < ALL:
        raise InputError(f"recompute={least}: the network has {ends[-1]} repeated blocks")
    fewest = least if least == ALL else bisect_left(ends, least)
    highest = most if most == ALL else bisect_right(ends, most) - 1
    if fewest > highest:
        raise _no_whole_periods(limits, together)
    low, high = {**limits.least, "recompute": fewest}, {**limits.most, "recompute": highest}
    return replace(request, limits=replace(limits, least=low, most=high, question=str(limits)))


def _no_whole_periods(limits: Limits, together: Graph) -> InputError:
    number, length = limits.least.get("recompute", 0), longest(together)
    return InputError(
        f"recompute={number}: kinds of blocks take turns in {together.name}, where {length} of them are recomputed together;"
        " give a multiple, or bounds"
    )


def split_period(plan: Plan, together: Graph, limits: Limits) -> Plan:
    """`plan` within `limits` for the network as it is, where it is for `together`, in which periods of its blocks are taken for
    one. InputError where it recomputes another number of blocks than `limits` ask for: periods are not of one length.
    """
    length = longest(together)
    if length == 1:
        return plan
    stages = tuple(
        StagePlan(stage.strategies, replace(stage.settings, recompute=_recompute(stage.settings.recompute)))
        for stage in plan.stages
    )
    recomputed, least = sum(len(stage.settings.recompute) for stage in stages), limits.least.get("recompute", 0)
    if least < ALL and limits.names("recompute") and not limits.allows("recompute", recomputed):
        raise _no_whole_periods(limits, together)
    pipeline = plan.pipeline
    if pipeline is not None:
        starts = [*accumulate((len(name.split(JOINT)) for name in together.blocks), initial=0)]
        layers = tuple(tuple(range(starts[r.start], starts[r.stop]) for r in runs) for runs in pipeline.layers)
        pipeline = replace(pipeline, layers=layers)
    search = replace(plan.search, method=f"{plan.search.method}; kinds of blocks take turns, {length} blocks are one")
    own = separated(together).hash
    return replace(
        plan,
        graph_hash=own,
        stages=stages,
        pipeline=pipeline,
        search=search,
        fixed=limits.fixed,
        at_most=limits.at_most,
    )


def joint_stage(stage: StagePlan, together: Graph) -> StagePlan | None:
    """`stage`, of the blocks as they are, for `together`; None where no mark says what the blocks of a period recompute."""
    of_blocks = stage.settings.recompute
    found: dict[str, Recompute] = {}
    for names in together.blocks:
        parts = [of_blocks.get(name) for name in names.split(JOINT)]
        if not any(parts):
            continue
        one = of_parts(parts) if len(parts) > 1 else parts[0]
        if one is None:
            return None
        found[names] = one
    return replace(stage, settings=replace(stage.settings, recompute=found))


def separated(together: Graph) -> Graph:
    """The graph that `together` was `merge_period` of."""
    if longest(together) == 1:
        return together
    ops = (op if op.part is None else replace(op, block=op.part, part=None) for op in together.ops)
    return replace(together, ops=tuple(ops))


def longest(together: Graph) -> int:
    """How many blocks are taken for one at most: 1 where none are."""
    return max((len(name.split(JOINT)) for name in together.blocks), default=1)


def _recompute(chosen: Mapping[str, Recompute]) -> dict[str, Recompute]:
    """What the blocks that were taken for one recompute, each by itself."""
    found: dict[str, Recompute] = {}
    for names, of_all in chosen.items():
        parts = names.split(JOINT)
        for number, name in enumerate(parts):
            if (own := of_part(of_all, number) if len(parts) > 1 else of_all) is not None:
                found[name] = own
    return found
