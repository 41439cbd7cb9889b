"""The plans that people write by hand, to be priced beside those of the search: Megatron's, MindFormers', plain ZeRO."""

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.fixed_assignment import FixedAssignment, price_fixed
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.network import Network, network
from ms_symtensor.search.stages.stage_layers import even
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

EXPERTS = Path(__file__).parent / "data" / "expert_configurations.csv"
MICRO_BATCHES = (1, 2, 4)
"""Samples of a micro-batch per copy of the model that Megatron's users try."""


@dataclass(frozen=True)
class Task:
    """A network of the zoo to train on `device_num` devices of `cluster`; `config.batch_size` samples a step."""

    config: TransformerConfig
    cluster: Cluster
    device_num: int

    @property
    def request(self) -> Request:
        of = self.config
        source = {
            "model": of.name, "num_layers": str(of.num_layers), "seq_length": str(of.seq_length),
            "batch_size": str(of.batch_size), "attention": of.attention, "compute_dtype": of.compute_dtype,
        }  # fmt: skip
        limit_B = int(self.cluster.device.hbm_usable_B)
        return Request(self.cluster, self.device_num, of.batch_size, of.seq_length, limit_B, of.name, source)

    @property
    def network(self) -> Network:
        return network_of(self.config)


def task(model: str, cluster: Cluster, device_num: int, batch: int, **options: Any) -> Task:
    """`options` are those of `dimensions_of`."""
    return Task(dimensions_of(model, batch_size=batch, **options), cluster, device_num)


@lru_cache(maxsize=8)
def network_of(config: TransformerConfig) -> Network:
    """`config` at any batch and depth."""

    def graph_at(batch: int, layers: int | None) -> Graph:
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    return network(build_graph(config), graph_at)


@dataclass(frozen=True)
class Hand:
    """Degrees that people write down, `micro_batch` samples of a micro-batch per copy of the model.

    `layers` and `recomputed` per stage, None: see `FixedAssignment`. `expert_parallel` None: as many as the copies allow.
    """

    data_parallel: int
    tensor_parallel: int
    pipeline_stages: int
    micro_batch: int
    sequence_parallel: bool
    level: OptimizerLevel
    layers: tuple[int, ...] | None = None
    recomputed: tuple[int, ...] | None = None
    expert_parallel: int | None = None

    def __str__(self) -> str:
        sequence = " sp" if self.sequence_parallel else ""
        return (
            f"dp{self.data_parallel} tp{self.tensor_parallel}{sequence} pp{self.pipeline_stages} mb{self.micro_batch}"
            f" zero{int(self.level)}"
        )


def priced(of: Task, hand: Hand) -> Plan:
    """`hand` for `of`. Errors: InputError where something does not divide; InvalidStrategyError for what MindSpore rejects."""
    return price_fixed(of.network, of.request, given(of, hand))


def given(of: Task, hand: Hand) -> FixedAssignment:
    """`hand` with its strategies. Errors: InputError where something does not divide."""
    batch = hand.micro_batch * hand.data_parallel
    if of.config.batch_size % batch:
        raise InputError(f"a batch of {of.config.batch_size} does not divide into micro-batches of {batch} samples")
    number = of.config.batch_size // batch
    if (number > 1 or hand.pipeline_stages > 1) and not 1 < hand.pipeline_stages <= number:
        raise InputError(f"{number} micro-batches on {hand.pipeline_stages} stages")
    shape = StepLayout(hand.pipeline_stages, number, (hand.data_parallel, hand.tensor_parallel), batch)

    def strategies(graph: Graph) -> Mapping[str, OpStrategy]:
        cuts = megatron_strategy(
            graph, replace(of.config, batch_size=batch), hand.data_parallel, hand.tensor_parallel,
            hand.sequence_parallel, hand.expert_parallel,
        )  # fmt: skip
        return {name: OpStrategy(*strategy) for name, strategy in cuts.items()}

    return FixedAssignment(shape, hand.level, strategies, hand.layers, hand.recomputed)


def megatron_usual(of: Task) -> tuple[Hand, Plan] | None:
    """Tensor parallelism over a node, as few stages as make it fit, data parallelism over the rest; None: nothing fits.

    With sequence parallelism and distributed optimizer, evenly many blocks per stage, nothing or (where that does not fit)
    everything recomputed, and the fastest micro-batch (Narayanan et al. 2021, section 5: tensor parallelism up to the
    devices of a node, then pipeline parallelism; Korthikanti et al. 2022).
    """
    node = of.cluster.levels[0].ranks or of.device_num
    tensor = min(node, of.device_num)
    for stages in _powers(of.device_num // tensor):
        data = of.device_num // (tensor * stages)
        fitting = [found for found in _tried(of, data, tensor, stages, (True,)) if found[1].prediction.fits]
        if fitting:
            return min(fitting, key=lambda found: found[1].prediction.step_time_s)
    return None


def megatron_tuned(of: Task) -> tuple[Hand, Plan] | None:
    """The fastest of all splits into data, tensor (within a node) and pipeline parallelism; None: nothing fits."""
    node = of.cluster.levels[0].ranks or of.device_num
    found = [
        one
        for tensor in _powers(min(node, of.device_num))
        for stages in _powers(of.device_num // tensor)
        for one in _tried(
            of, of.device_num // (tensor * stages), tensor, stages, (True, False) if tensor > 1 else (False,)
        )
        if one[1].prediction.fits
    ]
    return min(found, key=lambda one: one[1].prediction.step_time_s, default=None)


def zero_data_parallel(of: Task) -> tuple[Hand, Plan] | None:
    """Data parallelism alone with the best optimizer sharding, as few blocks recomputed as fit; None: nothing fits."""
    found = []
    for level in (OptimizerLevel.LEVEL1, OptimizerLevel.LEVEL3):
        one = _price(of, Hand(of.device_num, 1, 1, of.config.batch_size // of.device_num, False, level))
        if one is not None and one[1].prediction.fits:
            found.append(one)
    return min(found, key=lambda one: one[1].prediction.step_time_s, default=None)


@dataclass(frozen=True)
class Expert:
    """A hand-tuned MindFormers configuration; `hand` on as many devices as it was written for."""

    model: str
    name: str
    attention: str
    global_batch_size: int
    seq_length: int
    hand: Hand
    source: str

    @property
    def device_num(self) -> int:
        return self.hand.data_parallel * self.hand.tensor_parallel * self.hand.pipeline_stages

    def task(self, cluster: Cluster) -> Task:
        """What it is for."""
        return task(
            self.model, cluster, self.device_num, self.global_batch_size, seq_length=self.seq_length,
            attention=self.attention,
        )  # fmt: skip

    def at(self, device_num: int) -> "Expert | None":
        """The same on more or fewer devices: as many copies as there is room for, each with as many samples; None: no room."""
        one = self.hand.tensor_parallel * self.hand.pipeline_stages
        if device_num % one:
            return None
        copies = device_num // one
        batch = self.global_batch_size // self.hand.data_parallel * copies
        expert = math.gcd(self.hand.expert_parallel, copies) if self.hand.expert_parallel else None
        hand = replace(self.hand, data_parallel=copies, expert_parallel=expert)
        return replace(self, global_batch_size=batch, hand=hand)


def experts(path: Path = EXPERTS) -> tuple[Expert, ...]:
    """The configurations of the table `path`, which names the columns and the source of each."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return tuple(map(_expert, rows))


def _expert(row: Mapping[str, str]) -> Expert:
    stages, layers = int(row["pp"]), dimensions_of(row["model"]).num_layers
    offset = _numbers(row["offset"])
    blocks = tuple(layers // stages + more for more in offset) or even(layers, stages)
    recomputation: tuple[int, ...] | None = {"all": blocks, "none": (0,) * stages}.get(row["recompute"])
    if recomputation is None and row["recompute"] != "as_needed":
        recomputation = _numbers(row["recompute"])
    hand = Hand(
        int(row["dp"]), int(row["tp"]), stages, int(row["micro_batch"]), row["sp"] == "yes",
        OptimizerLevel.LEVEL1 if row["optimizer_sharding"] == "yes" else OptimizerLevel.NONE,
        blocks, recomputation, int(row["ep"]) if row["ep"] else None,
    )  # fmt: skip
    return Expert(
        row["model"],
        row["name"],
        row["attention"],
        int(row["global_batch"]),
        int(row["seq_length"]),
        hand,
        row["source"],
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split())


def _tried(
    of: Task, data: int, tensor: int, stages: int, sequence_parallel: tuple[bool, ...]
) -> Iterator[tuple[Hand, Plan]]:
    """All micro-batches; nothing recomputed, or all where that does not fit."""
    if stages > of.config.num_layers or of.config.batch_size % data:
        return
    whole = of.config.batch_size // data
    for sequence in sequence_parallel:
        for micro_batch in (whole,) if stages == 1 else MICRO_BATCHES:
            for recomputation in ((0,) * stages, even(of.config.num_layers, stages)):
                hand = Hand(
                    data, tensor, stages, micro_batch, sequence, OptimizerLevel.LEVEL1,
                    even(of.config.num_layers, stages), recomputation,
                )  # fmt: skip
                found = _price(of, hand)
                if found is None:
                    break
                yield found
                if found[1].prediction.fits:
                    break


def _price(of: Task, hand: Hand) -> tuple[Hand, Plan] | None:
    try:
        return hand, priced(of, hand)
    except (InputError, InvalidStrategyError, InfeasibleError):
        return None  # a size that does not divide


def _powers(most: int) -> tuple[int, ...]:
    return tuple(2**i for i in range(most.bit_length()) if most % 2**i == 0)
