"""A weight that is read through Transpose: MindSpore never sums its gradient, so a plan must not need that sum."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.parameters import require_synchronised
from ms_symtensor.program.partition import partition
from ms_symtensor.search.plan import plan
from ms_symtensor.tensor.graph import OpOutput
from tests.program.test_partition import TRANSPOSE, product


@pytest.mark.parametrize("device_num", [2, 4, 8])
def test_the_plan_works_round_it(device_num):
    graph = product((TRANSPOSE,), OpOutput(TRANSPOSE.name), True)
    assert all(signature(view(graph, op)).shardable for op in graph.ops)
    found = plan(graph, load("atlas_800t_a2"), device_num=device_num, global_batch_size=32, seq_length=1)
    require_synchronised(partition(graph, found.stage).parameters, device_num)
