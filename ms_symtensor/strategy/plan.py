"""The answer as data: a plan for one network on one cluster, with what was predicted for it and how it was found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ms_symtensor.program.settings import StagePlan


@dataclass(frozen=True)
class Prediction:
    """Predicted time of one training step in seconds and peak memory of a rank in bytes, each with its breakdown.

    `time_s` has the keys compute, communication, synchronisation, optimizer, overhead; `memory_B` parameters,
    gradients, optimizer_states, activations, buffers. The totals are sums of the breakdowns.
    """

    time_s: Mapping[str, float]
    memory_B: Mapping[str, int]
    fits: bool
    limit_B: int

    @property
    def step_time_s(self) -> float:
        return sum(self.time_s.values())

    @property
    def peak_memory_B(self) -> int:
        return sum(self.memory_B.values())


@dataclass(frozen=True)
class SearchReport:
    """How the plan was found: candidates priced, seconds, how far the optimum of the model can be (fraction >= 0)."""

    candidates: int
    search_time_s: float
    optimality_gap: float
    method: str


@dataclass(frozen=True)
class Plan:
    """A plan for `graph_hash` on `device_num` devices of `cluster`.

    The degrees are a summary for people, read off the operators' strategies: `data_parallel` and `model_parallel` of
    the heaviest operators, `sequence_parallel` whether norms are cut finer than the batch.
    """

    model: str
    graph_hash: str
    cluster: str
    stage: StagePlan
    global_batch_size: int
    seq_length: int
    data_parallel: int
    model_parallel: int
    sequence_parallel: bool
    prediction: Prediction
    search: SearchReport
    pipeline_stages: int = 1
    micro_batch_num: int = 1
    source: Mapping[str, str] = field(default_factory=dict)
    """How to rebuild the network: {"model": …} of the zoo with its options, or {"factory": "file.py:function"}."""

    @property
    def device_num(self) -> int:
        return self.stage.settings.device_num
