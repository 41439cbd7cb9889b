"""The cases of benchmarks/proofs.py: plans and strategies by hand for the published networks of the zoo."""

from dataclasses import dataclass, replace

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.search.plan import plan
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport

CLUSTER = "atlas_800t_a2"
LAYERS = 2
UNLIMITED_B = 1 << 44


@dataclass(frozen=True)
class Case:
    """A strategy for `device_num` devices: planned, or by hand with these degrees and settings."""

    name: str
    device_num: int
    planned: bool = False
    model_parallel: int = 1
    sequence_parallel: bool = False
    level: OptimizerLevel = OptimizerLevel.NONE
    recompute: bool = False


CASES = (
    *(Case(f"plan for {n}", n, planned=True) for n in (2, 4, 8)),
    *(
        Case(f"DP{4 // tp} TP{tp}{' SP' if sequence else ''}", 4, model_parallel=tp, sequence_parallel=sequence)
        for tp in (2, 4)
        for sequence in (False, True)
    ),
    Case("DP4", 4),
    *(Case(f"DP4 ZeRO{int(level)}", 4, level=level) for level in OptimizerLevel if level),
    Case("DP2 TP2 SP recompute", 4, model_parallel=2, sequence_parallel=True, recompute=True),
)
CASE_BY_NAME = {case.name: case for case in CASES}


def plan_of(case: Case, model: str, attention: str, layers: int = LAYERS) -> Plan:
    """The plan of `case` for the published network, which is made for larger devices where it does not fit.

    What is written by hand is alike in all layers of a kind: `layers` of the last kind are enough.
    """
    batch = 2 * case.device_num
    config = dimensions_of(model, batch_size=batch, attention=attention)
    if not case.planned:
        config = replace(config, num_layers=config.dense_layers + layers)
    source = {"model": model, "attention": attention, "batch_size": str(batch), "num_layers": str(config.num_layers)}
    graph = build_graph(config)
    if case.planned:
        request = {
            "device_num": case.device_num, "global_batch_size": batch, "seq_length": config.seq_length, "model": model,
            "source": source,
        }  # fmt: skip
        try:
            return plan(graph, load(CLUSTER), **request)
        except InfeasibleError:
            return plan(graph, load(CLUSTER), memory_limit_B=UNLIMITED_B, **request)
    data = case.device_num // case.model_parallel
    cuts = megatron_strategy(graph, config, data, case.model_parallel, case.sequence_parallel)
    given = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    blocks = dict.fromkeys(op.block for op in graph.ops if op.block is not None)
    settings = Settings(
        case.device_num,
        optimizer_level=case.level,
        recompute={block: Recompute() for block in blocks} if case.recompute else {},
    )
    return Plan(
        model, graph.hash, CLUSTER, (StagePlan(given, settings),), batch, config.seq_length, data, case.model_parallel,
        case.sequence_parallel, Prediction({}, {}, True, 0), SearchReport(0, 0.0, 0.0, "by hand"), source=source,
    )  # fmt: skip
