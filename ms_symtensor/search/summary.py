"""The degrees of parallelism that people ask for, read off the operators' strategies."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import Unit, view
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.graph import Graph, ParameterRef


@dataclass(frozen=True)
class Degrees:
    """`data_parallel` x `model_parallel` of the heaviest products; `sequence_parallel`: most norms are cut finer."""

    data_parallel: int
    model_parallel: int
    sequence_parallel: bool


def degrees(
    graph: Graph,
    plan: StagePlan,
    rules: Mapping[str, Rule] | None = None,
    times: Mapping[str, int] = MappingProxyType({}),
) -> Degrees:
    """Data parallelism is a cut of the rows that weights do not have, model parallelism a cut of a weight's dims.

    `times`: how many equal blocks some of the blocks stand for.
    """
    found: Counter[tuple[int, int]] = Counter()
    norm_cuts: list[int] = []
    for op in graph.ops:
        seen = view(graph, op)
        sig = signature(seen, rules)
        if not sig.shardable or op.name not in plan.strategies:
            continue
        cuts = cuts_of(seen, sig, plan.strategies[op.name], plan.settings.device_num)
        if op.type in ("RmsNorm", "LayerNorm"):
            cut = math.prod(cuts.get(d, 1) for d in sig.inputs[0] if d)
            norm_cuts += [cut] * times.get(op.block or "", 1)
        if sig.unit is Unit.CUBE and any(_is_weight(graph, s) for s in graph.tensor_inputs(op)):
            weight = {d for dims in sig.inputs[1:2] for d in dims if d}
            rows = math.prod(n for d, n in cuts.items() if d not in weight)
            columns = math.prod(n for d, n in cuts.items() if d in weight)
            found[rows, columns] += times.get(op.block or "", 1) * int(sum(t.element_num for t in seen.outputs))
    rows, columns = max(found, key=lambda k: (found[k], k)) if found else (1, 1)
    finer = sum(cut > rows for cut in norm_cuts)
    return Degrees(rows, columns, columns > 1 and 2 * finer > len(norm_cuts))


def _is_weight(graph: Graph, source: object) -> bool:
    while not isinstance(source, ParameterRef):
        op = graph.op_by_name.get(getattr(source, "op", ""))
        if op is None or op.type != "Cast":
            return False
        source = graph.tensor_inputs(op)[0]
    return True
