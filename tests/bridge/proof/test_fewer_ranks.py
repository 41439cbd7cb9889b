"""Plans on the first of their devices."""

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.bridge.proof.fewer_ranks import on_first_ranks
from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.tensor.graph import Graph

CONFIG = dimensions_of("llama2_7b", num_layers=1, batch_size=16, seq_length=64)


def megatron(graph: Graph, data: int, model: int, sequence: bool) -> StagePlan:
    cuts = megatron_strategy(graph, CONFIG, data, model, sequence)
    given = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    return StagePlan(given, Settings(data * model))


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize(("before", "after"), [((8, 4), (2, 4)), ((16, 1), (4, 1)), ((2, 4), (1, 4))])
def test_data_parallelism_shrinks_and_tensor_parallelism_stays(
    before: tuple[int, int], after: tuple[int, int], sequence: bool
) -> None:
    graph = build_graph(CONFIG)
    ranks = after[0] * after[1]
    found = on_first_ranks(graph, megatron(graph, *before, sequence), ranks)
    assert found == megatron(graph, *after, sequence)


def test_what_breaks_is_refused() -> None:
    graph = build_graph(CONFIG)
    with pytest.raises(InputError, match="give a divisor of 8"):
        on_first_ranks(graph, megatron(graph, 8, 1, False), 3)
