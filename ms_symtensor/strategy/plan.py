"""The answer as data: a plan for one network on one cluster, with what was predicted for it and how it was found.

A plan of one stage is `Plan(..., stages=(StagePlan(strategies, settings),))`. One of several stages has a StagePlan for each,
with the strategies of the operators that run there, and a `Pipeline`; `strategy.stages.pipeline_stages` makes both from
strategies, layers per stage and settings.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.overlap import named
from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.version import VERSION


class MicroBatchLoss(Enum):
    """What training in micro-batches makes of a loss, beside training on the whole batch."""

    EACH = "as one batch"  # samples weigh the same
    COUNTED = "counted over the whole batch"  # samples weigh differently, and as in one batch
    MEAN_OF_MEANS = "mean of micro-batch means"  # samples may weigh otherwise than in one batch


@dataclass(frozen=True)
class Prediction:
    """Predicted time of one training step in seconds and peak memory of a rank in bytes, each with its breakdown.

    `time_s` has the keys compute, communication, synchronisation, optimizer, overhead; `memory_B` parameters,
    gradients, optimizer_states, activations, buffers. The totals are sums of the breakdowns. `host_memory_B`: optimizer states
    that stay on the host (of the fullest stage), and are not among those.
    """

    time_s: Mapping[str, float]
    memory_B: Mapping[str, int]
    fits: bool
    limit_B: int
    host_memory_B: int = 0
    hidden_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of communication that runs beside computation, by `cost.bill.Part`: no part of the step."""
    experts_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of experts, by what for (`cost.stage_time.EXPERTS`), which are among `time_s` or hidden."""

    @property
    def step_time_s(self) -> float:
        return math.fsum(self.time_s.values())

    @property
    def peak_memory_B(self) -> int:
        return sum(self.memory_B.values())


@dataclass(frozen=True)
class SearchReport:
    """How the plan was found: candidates priced, seconds, how far the optimum of the model can be (fraction >= 0).

    `considered`: the ways to lay out the step that were looked at, the best first.
    """

    candidates: int
    search_time_s: float
    optimality_gap: float
    method: str
    considered: tuple[Considered, ...] = ()


SIZES = (
    "global_batch_size", "seq_length", "data_parallel", "model_parallel", "sequence_parallel", "context_parallel",
    "expert_parallel",
)  # fmt: skip
"""Of a plan: its batch, and how it is cut; the keys of files are the names."""


@dataclass(frozen=True)
class Plan:
    """A plan for `graph_hash` on `device_num` devices of `cluster`.

    `stages` hold what each pipeline stage runs; the settings of all are alike but for the recomputed blocks. With a
    `pipeline` the graph is that of one micro-batch: `global_batch_size / micro_batch_num` samples. The
    degrees are a summary for people, read off the operators' strategies: `data_parallel` and `model_parallel` of the
    heaviest operators, `sequence_parallel` whether norms are cut finer than the batch, `context_parallel` over how many
    devices attention shares out a sequence, `expert_parallel` into how many slices experts are cut.
    """

    model: str
    graph_hash: str
    cluster: str
    stages: tuple[StagePlan, ...]
    global_batch_size: int
    seq_length: int
    data_parallel: int
    model_parallel: int
    sequence_parallel: bool
    prediction: Prediction
    search: SearchReport
    pipeline: Pipeline | None = None
    source: Mapping[str, str] = field(default_factory=dict)
    """How to rebuild the network of the graph, with a pipeline at the size of one micro-batch: {"model": …} of the zoo with its
    options, or {"factory": "file.py:function"}."""
    context_parallel: int = 1
    expert_parallel: int = 1
    fixed: Mapping[str, str] = field(default_factory=dict)
    """What the user pinned, names and values as written; `at_most`: what was bounded from above."""
    at_most: Mapping[str, str] = field(default_factory=dict)
    own_cluster: Cluster | None = None
    """The cluster, where it is not the known one called `cluster` (`planned_for`)."""
    made_with: Mapping[str, str] = field(default_factory=lambda: {"ms_symtensor": VERSION})
    """Versions of this package, and of MindSpore where it captured the network."""
    trusted: bool = field(default=True, compare=False)
    """Whether the factory that `source` names may run: the plan was made in this process, by this user, or the user says so."""

    loss: MicroBatchLoss | None = None
    """None where there is one micro-batch, or nobody has looked."""

    def __post_init__(self) -> None:
        expected = 1 if self.pipeline is None else self.pipeline.stage_num
        if len(self.stages) != expected:
            raise InputError(f"a plan with {len(self.stages)} stages for a pipeline of {expected}: give one per stage")
        if any(
            replace(s.settings, recompute={}) != replace(self.stages[0].settings, recompute={}) for s in self.stages
        ):
            raise InputError("the stages of a pipeline have different settings: MindSpore knows one for all")
        strategies = self.strategies
        for stage in self.stages:
            for name, strategy in stage.strategies.items():
                if strategies[name] is not strategy and strategies[name] != strategy:
                    raise InputError(f"{name} runs on several pipeline stages with different strategies: give it one")

    runtime: str = "mindspore_graph"
    hide: str = ""
    """What the price assumes of the software that runs the plan: the run-time, and what it hides beside its file."""

    @property
    def planned_for(self) -> Cluster:
        """The cluster that the plan is for."""
        return load_cluster(self.cluster) if self.own_cluster is None else self.own_cluster

    @property
    def overlap(self) -> tuple[str, ...]:
        """The overlap settings that MindSpore is told (`cost.overlap`)."""
        return named(self.hide)

    @property
    def stage(self) -> StagePlan:
        """The only stage; InputError where there are several, or micro-batches."""
        if self.pipeline is not None:
            raise InputError(
                f"the plan has {self.pipeline_stages} pipeline stages and {self.micro_batch_num} micro-batches: this works on"
                " plans of one stage and one batch only"
            )
        return self.stages[0]

    @property
    def settings(self) -> Settings:
        """The settings that all stages share; `recompute` has the blocks of all."""
        recomputation = {name: found for stage in self.stages for name, found in stage.settings.recompute.items()}
        return replace(self.stages[0].settings, recompute=recomputation)

    @property
    def strategies(self) -> Mapping[str, OpStrategy]:
        """The strategies of the operators of all stages."""
        return {name: strategy for stage in self.stages for name, strategy in stage.strategies.items()}

    @property
    def whole(self) -> StagePlan:
        """All operators and blocks as if on one stage: what is put onto the network, whose cells are the same on every rank."""
        return StagePlan(self.strategies, self.settings)

    @property
    def pipeline_stages(self) -> int:
        return len(self.stages)

    @property
    def micro_batch_num(self) -> int:
        return 1 if self.pipeline is None else self.pipeline.micro_batch_num

    @property
    def pp_interleave_num(self) -> int:
        """Model chunks per stage."""
        return 1 if self.pipeline is None else self.pipeline.interleave

    @property
    def pipeline_scheduler(self) -> str:
        """In which order stages take micro-batches."""
        return DEFAULT_SCHEDULER if self.pipeline is None else self.pipeline.scheduler

    @property
    def device_num(self) -> int:
        """Devices of all stages together."""
        return sum(stage.settings.device_num for stage in self.stages)
