"""Operators whose work several devices repeat, and what that costs: functional ones among them could be cut otherwise."""

import math
from collections import Counter
from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.operator import evaluate
from ms_symtensor.ops.instead import INSTEAD
from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.ops.signature import OpView, Signature, Unit
from ms_symtensor.program.meanings import default_strategy, meanings
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.report.text import seconds
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph, Op

SHOWN = 3
"""So many kinds are shown."""

LEAST_SHARE = 0.02
"""Of the step that a kind has to take in vain to be named (empirical)."""


@dataclass(frozen=True)
class _Kind:
    """Operators that are alike: their primitive, why they are not cut and what would help, and how many devices do the same."""

    type: str
    remedy: str
    copies: int


def repeated_work_text(graph: Graph, plan: Plan) -> str:
    """The kinds of operators that take most of the step in vain, forward and backward; empty where none takes a part to speak of.

    In vain is what the copies of the work take over an even share of it.
    """
    spent, number = dict[_Kind, float](), Counter[_Kind]()
    whole, known, cluster = plan.whole, meanings(graph), plan.planned_for
    for op in graph.ops:
        if op.body is None and (found := _repeated(op, *known[op.name], whole, cluster)) is not None:
            kind, time_s = found
            spent[kind] = spent.get(kind, 0.0) + time_s * plan.micro_batch_num
            number[kind] += 1
    step_s = plan.prediction.step_time_s
    worst = sorted((k for k in spent if spent[k] > LEAST_SHARE * step_s), key=lambda k: (-spent[k], k.type))[:SHOWN]
    lines = [_line(kind, number[kind], spent[kind], step_s, whole.settings.device_num) for kind in worst]
    return "\n".join(["Work that devices repeat", *lines]) if lines else ""


def _repeated(op: Op, seen: OpView, sig: Signature, whole: StagePlan, cluster: Cluster) -> tuple[_Kind, float] | None:
    """The kind of `op`, and seconds of one pass that it takes in vain; None where its work is shared out, or is none."""
    device_num = whole.settings.device_num
    if not sig.shardable or sig.unit is Unit.NONE or sig.layouts is not None:
        return None
    strategy = whole.strategies.get(op.name) or default_strategy(seen, sig, device_num)
    cuts = cuts_of(seen, sig, strategy, device_num)
    copies = device_num // math.prod(cuts.values())
    if copies == 1:
        return None
    costs = evaluate(seen, sig, 2 if sig.unit is Unit.CUBE else 1, [cuts], cluster)
    time_s = float(costs.forward_s[0] + costs.backward_s[0])
    return _Kind(op.type, _remedy(op, sig), copies), time_s * (1 - 1 / copies)


def _remedy(op: Op, sig: Signature) -> str:
    if sig.is_distributed:
        return "functional, as primitives of their cells they could be cut" if op.is_on_the_fly else ""
    written = f", write {INSTEAD[op.type][1]}" if op.type in INSTEAD else ""
    return f"MindSpore has no distributed form{written}"


def _line(kind: _Kind, number: int, time_s: float, step_s: float, device_num: int) -> str:
    who = "every device does all the work" if kind.copies == device_num else f"{kind.copies} devices do the same work"
    remedy = kind.remedy and f": {kind.remedy}"
    return f"  {number} {kind.type}: {who}, {seconds(time_s)} of the step ({time_s / step_s:.0%}) in vain{remedy}"
