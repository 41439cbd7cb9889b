"""Plans of several stages cost what their programs cost, also where a family of meshes is wrong about one."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.folded.depth import judged
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.network import network
from ms_symtensor.search.stages.outer import survey
from ms_symtensor.search.stages.own_mesh import priced
from ms_symtensor.search.stages.whole import settings_of, strategies_of

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("layers", [4, 8])
@pytest.mark.parametrize(("model", "mesh", "batch"), [("mixtral_8x7b", (8,), 2), ("llama3_8b", (4, 8), 4)])
def test_work_is_that_of_the_partitioned_program(model, mesh, batch, layers):
    """Two samples on 8 devices, priced with two devices as the representative; and every sample on 8 devices."""
    config = dimensions_of(model, num_layers=layers, batch_size=batch, seq_length=1024)

    def graph_at(samples, layers):
        return build_graph(replace(config, batch_size=samples, num_layers=layers or config.num_layers))

    net = network(graph_at(batch, None), graph_at)
    outcome = survey(net.short, net.depths, [Shape(2, 8, mesh, batch)], A2, 1e15)
    for row in outcome.rows:
        if row.level is OptimizerLevel.NONE:
            strategies = strategies_of(row)
            own = priced(net, row, strategies)
            found = judged(net.shorts(batch, None), strategies, settings_of(own), A2)
            program_s = found.cost.time_s["compute"] + found.cost.time_s["communication"]
            work_s = float((own.costs.each_s * net.depths).sum())
            assert work_s == pytest.approx(program_s - found.weights.local_s - found.weights.communication_s, rel=2e-3)
