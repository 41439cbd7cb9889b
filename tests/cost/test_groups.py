"""Which ranks the groups of a configuration have, and which links they use."""

from dataclasses import replace

import numpy as np
import pytest

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.configuration import Configuration, Experts, Transformer
from ms_symtensor.cost.groups import Groups, axes_of

A100 = load("a100_80g")
MODEL = Transformer(4096, 32, 32, 32, 11008, 32000, experts=Experts(16, 2, 1024))
SPREAD = Configuration(
    MODEL, 4096, data_parallel=8, model_parallel=4, context_parallel=2, expert_parallel=4, pipeline_stages=2
)


@pytest.mark.parametrize(
    "group, axes",
    [
        ("tp", ((4, 1),)),
        ("cp", ((2, 4),)),
        ("dp", ((16, 4),)),
        ("etp", ((4, 1),)),
        ("ep", ((4, 4),)),
        ("expert_dp", ((4, 16),)),
        ("pp", ((2, 64),)),
    ],
)
def test_groups_in_megatrons_order(group, axes):
    assert axes_of(SPREAD, group) == axes


def test_whole_experts_lie_on_tensor_ranks_too():
    whole = replace(SPREAD, expert_model_parallel=1)
    assert [axes_of(whole, group) for group in ("etp", "ep", "expert_dp")] == [((1, 1),), ((4, 1),), ((16, 4),)]


def test_a_group_is_priced_as_its_ranks_are():
    groups = Groups((SPREAD,))
    found = groups.seconds(A100, Collective.ALL_REDUCE, "dp", np.array([1e9]))
    ranks = tuple(range(0, 64, 4))
    assert found[0] == pytest.approx(collective_time_s(A100, "AllReduce", ranks, 1e9) + A100.device.op_overhead_s)


def test_a_group_of_one_costs_nothing():
    alone = Configuration(MODEL, 4096)
    assert Groups((alone,)).seconds(A100, Collective.ALL_REDUCE, "tp", np.array([1e9]))[0] == 0


def test_which_pipelines_cross_nodes():
    near = Configuration(MODEL, 4096, pipeline_stages=2, model_parallel=4)
    np.testing.assert_array_equal(Groups((SPREAD, near)).crosses_nodes(A100, "pp"), [1, 0])
