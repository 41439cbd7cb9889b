from collections.abc import Mapping
from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.stage_time import pipelined_step_s, stage_seconds
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.fixed_assignment import FixedAssignment, price_fixed
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.network import Network, network
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

CLUSTER = load("atlas_800t_a2")
BATCH, LAYERS = 16, 6
GIB = 1 << 30
LIMIT_B = 1 << 60


def _network(config: TransformerConfig) -> Network:
    return network(
        build_graph(config),
        lambda batch, layers: build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers)),
    )


def _plan(model: str, stages: int, tensor: int, recomputation: int, level: OptimizerLevel) -> Plan:
    """Megatron's on two copies of the model, with two samples of a micro-batch each where there are several stages."""
    config = dimensions_of(model, num_layers=LAYERS, batch_size=BATCH)
    batch = BATCH if stages == 1 else 4

    def strategies(graph: Graph) -> Mapping[str, OpStrategy]:
        cuts = megatron_strategy(graph, replace(config, batch_size=batch), 2, tensor, tensor > 1)
        return {name: OpStrategy(*strategy) for name, strategy in cuts.items()}

    shape = StepLayout(stages, BATCH // batch, (2, tensor), batch)
    layers = (LAYERS // stages,) * stages
    request = Request(CLUSTER, 2 * tensor * stages, BATCH, config.seq_length, LIMIT_B)
    return price_fixed(
        _network(config), request, FixedAssignment(shape, level, strategies, layers, (recomputation,) * stages)
    )


@pytest.mark.parametrize("model", ["llama2_7b", "mixtral_8x7b", "gpt2_xl"])
@pytest.mark.parametrize("recomputation", [0, 1])
def test_stages_cost_what_their_programs_cost(model: str, recomputation: int) -> None:
    plan = _plan(model, 2, 2, recomputation, OptimizerLevel.LEVEL1)
    assert plan.pipeline is not None
    config = dimensions_of(model, num_layers=LAYERS, batch_size=4)
    programs = partition_stages(build_graph(config), plan.stages, plan.pipeline)
    seconds = [stage_seconds(p, stage, CLUSTER) for p, stage in zip(programs, plan.stages, strict=True)]
    assert plan.prediction.step_time_s == pytest.approx(pipelined_step_s(seconds, plan.micro_batch_num))
    assert [len(stage.settings.recompute) for stage in plan.stages] == [recomputation, recomputation]


def test_stages_recompute_as_few_blocks_as_fit() -> None:
    """Earlier stages keep more micro-batches, and recompute more."""
    config = dimensions_of("llama2_7b", num_layers=8, batch_size=BATCH)

    def strategies(graph: Graph) -> Mapping[str, OpStrategy]:
        cuts = megatron_strategy(graph, replace(config, batch_size=2), 2, 1, False)
        return {name: OpStrategy(*strategy) for name, strategy in cuts.items()}

    def recomputed(limit_B: int) -> list[int]:
        request = Request(CLUSTER, 4, BATCH, config.seq_length, limit_B)
        shape = StepLayout(2, 8, (2, 1), 2)
        plan = price_fixed(_network(config), request, FixedAssignment(shape, OptimizerLevel.LEVEL1, strategies, (4, 4)))
        peak_B = plan.prediction.peak_memory_B
        assert peak_B <= limit_B if limit_B > GIB else peak_B > limit_B
        return [len(stage.settings.recompute) for stage in plan.stages]

    assert recomputed(LIMIT_B) == [0, 0]
    assert recomputed(GIB) == [4, 4]
    first, last = recomputed(16 * GIB)
    assert first > last
