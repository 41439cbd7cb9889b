"""The cases of benchmarks/proofs.py: plans and strategies by hand for the published networks of the zoo."""

from dataclasses import dataclass, replace

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.models import planned, resolve
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.strategy.stages import pipeline_stages

CLUSTER = "atlas_800t_a2"
LAYERS = 1
"""Of what is written by hand, of the last kind of layer."""

SAMPLES = 2
"""Per device, or per device of a stage and micro-batch."""

UNLIMITED_B = 1 << 44


@dataclass(frozen=True)
class Case:
    """A strategy for `device_num` devices: planned, or by hand with these degrees and settings.

    With `pipeline_stages` the devices are dealt to stages, of one layer each where it is written by hand; with `interleave` they
    hold so many runs of one layer.
    """

    name: str
    device_num: int
    planned: bool = False
    model_parallel: int = 1
    sequence_parallel: bool = False
    level: OptimizerLevel = OptimizerLevel.NONE
    recompute: bool = False
    pipeline_stages: int = 1
    interleave: int = 1

    def suits(self, model: str) -> bool:
        """Whether `model` can be run so: only blocks that are all alike are interleaved, and no embedding that the head reads."""
        config = dimensions_of(model)
        alike = config.dense_layers == 0 and not config.tied_embeddings
        return self.interleave == 1 or alike


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
    Case("PP2 TP2 SP", 4, model_parallel=2, sequence_parallel=True, pipeline_stages=2),
    Case("PP2 DP2 ZeRO1", 4, level=OptimizerLevel.LEVEL1, pipeline_stages=2),
    Case("PP2 DP2 recompute", 4, recompute=True, pipeline_stages=2),
    Case("PP2x2 TP2 SP", 4, model_parallel=2, sequence_parallel=True, pipeline_stages=2, interleave=2),
    Case("PP2x2 DP2 ZeRO1 recompute", 4, level=OptimizerLevel.LEVEL1, recompute=True, pipeline_stages=2, interleave=2),
    Case("plan for 8, PP2", 8, planned=True, pipeline_stages=2),
)
CASE_BY_NAME = {case.name: case for case in CASES}


def plan_of(case: Case, model: str, attention: str, layers: int = LAYERS) -> Plan:
    """The plan of `case` for the published network, which is made for larger devices where it does not fit.

    What is written by hand is alike in all layers of a kind: `layers` of the last kind are enough.
    """
    return _planned(case, model, attention) if case.planned else _by_hand(case, model, attention, layers)


def _planned(case: Case, model: str, attention: str) -> Plan:
    found = resolve(model, SAMPLES * case.device_num, None, {"attention": attention})
    cluster = load(CLUSTER)
    pinned = {"pipeline_stages": case.pipeline_stages}
    request = Request(
        cluster, case.device_num, found.global_batch_size, found.seq_length, int(cluster.device.hbm_usable_B), model,
        found.source, Limits(pinned, pinned),
    )  # fmt: skip
    try:
        return planned(found, request)[0]
    except InfeasibleError:
        return planned(found, replace(request, limit_B=UNLIMITED_B))[0]


def _by_hand(case: Case, model: str, attention: str, layers: int) -> Plan:
    stages = case.pipeline_stages
    devices = case.device_num // stages  # of a stage
    micro_batch_num = 1 if stages == 1 else stages + 1 if case.interleave == 1 else 2 * stages
    config = dimensions_of(model, batch_size=SAMPLES * devices, attention=attention)
    config = replace(config, num_layers=config.dense_layers + max(layers, stages * case.interleave))
    source = {
        "model": model,
        "attention": attention,
        "batch_size": str(config.batch_size),
        "num_layers": str(config.num_layers),
    }
    graph = build_graph(config)
    data = devices // case.model_parallel
    cuts = megatron_strategy(graph, config, data, case.model_parallel, case.sequence_parallel)
    given = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    blocks = graph.blocks
    settings = Settings(
        devices,
        optimizer_level=case.level,
        recompute={block: Recompute() for block in blocks} if case.recompute else {},
    )
    plans: tuple[StagePlan, ...] = (StagePlan(given, settings),)
    pipeline: Pipeline | None = None
    if stages > 1:
        runs = [1] * (stages * case.interleave - 1)
        plans, pipeline = pipeline_stages(
            graph, [len(blocks) - sum(runs), *runs], [given] * stages, settings, micro_batch_num, case.interleave
        )
    return Plan(
        model, graph.hash, CLUSTER, plans, config.batch_size * micro_batch_num, config.seq_length, data,
        case.model_parallel, case.sequence_parallel, Prediction({}, {}, True, 0), SearchReport(0, 0.0, 0.0, "by hand"),
        pipeline, source,
    )  # fmt: skip
