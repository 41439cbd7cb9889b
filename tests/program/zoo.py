"""Small networks of the zoo with Megatron-style strategies, for the tests of predicted programs."""

from collections import Counter
from dataclasses import replace

from benchmarks.exactness_cases import small_config_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.tensor.graph import Graph


def small_graph(model: str, **changes) -> Graph:
    """A network of the zoo with small dims."""
    return build_graph(replace(small_config_of(model), **changes))


def program(model: str, data: int, tensor: int, sequence: bool = False, **settings) -> Program:
    """The predicted program of `model` on `data * tensor` devices."""
    config = small_config_of(model)
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, data, tensor, sequence)
    strategies = {name: OpStrategy(*pair) for name, pair in cuts.items()}
    return partition(graph, StagePlan(strategies, Settings(data * tensor, **settings)))


def collectives(found: Program, **wanted) -> Counter:
    """Kinds of the collectives of rank 0 whose fields are as `wanted`."""
    return Counter(c.kind for c in found.collectives() if all(getattr(c, k) == v for k, v in wanted.items()))
