"""Levels of the optimizer's sharding in the search for uniform layouts."""

from dataclasses import replace

from model_zoo import dimensions_of
from ms_symtensor.cluster.load import load
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.targets.mindformers.rules import RULES
from ms_symtensor.uniform.layout import Degrees, Stages, UniformLayout
from ms_symtensor.uniform.prices import Prices
from ms_symtensor.uniform.search import best_layout


def test_a_layout_that_fits_at_level_2_alone_is_found() -> None:
    """At level 1 weights, states and whole gradients need more than there is."""
    pins = limits_of([("pipeline_stages", 2), ("data_parallel", 32), ("model_parallel", 1), ("micro_batch_num", 2)])
    config = replace(dimensions_of("llama2_7b", num_layers=8), batch_size=64, seq_length=64)
    request = Request(load("atlas_800t_a2"), 64, 64, 64, int(4.05e9), limits=pins)
    at_level_1 = UniformLayout(Degrees(32, 1), Stages(2, 2))
    assert Prices(config, request).rough(at_level_1)[2] > request.limit_B
    layout, _ = best_layout(config, request, rules=RULES)
    assert layout.optimizer_level is OptimizerLevel.LEVEL2
