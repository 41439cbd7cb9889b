"""Plans of several stages cost what their programs cost, also where a family of meshes is wrong about one."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.bill import Part, Written, bill_of, work_s
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.folding import unfold
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.materialize import on_own_mesh
from ms_symtensor.search.stages.network import network
from ms_symtensor.search.stages.screening import screen
from ms_symtensor.strategy.stages import pipeline_stages

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("layers", [4, 8])
@pytest.mark.parametrize(("model", "mesh", "batch"), [("mixtral_8x7b", (8,), 2), ("llama3_8b", (4, 8), 4)])
def test_work_is_that_of_the_partitioned_program(model, mesh, batch, layers):
    """Two samples on 8 devices, priced with two devices as the representative; and every sample on 8 devices."""
    config = dimensions_of(model, num_layers=layers, batch_size=batch, seq_length=1024)

    def graph_at(samples, layers):
        return build_graph(replace(config, batch_size=samples, num_layers=layers or config.num_layers))

    net = network(graph_at(batch, None), graph_at)
    screening = screen(net.short, net.depths, [StepLayout(2, 8, mesh, batch)], Request(A2, 1, 1, 1, 10**15))
    for row in screening.rows:
        if row.level is OptimizerLevel.NONE:
            own = on_own_mesh(net, row)
            found = unfold(net.class_of, net.short(batch), row.strategies)
            half = layers // 2
            plans, pipeline = pipeline_stages(net.graph_at(batch), (half, half), [found, found], own.settings, 8)
            programs = partition_stages(net.graph_at(batch), plans, pipeline)
            bills = [
                bill_of(Written.of(program.graph, plan, program, meanings(program.graph)))
                for program, plan in zip(programs, plans, strict=True)
            ]
            program_s = sum(
                count * work_s(work, A2)
                for bill in bills
                for key, works in bill.items.items()
                if not key.once and key.part is not Part.BORDER
                for work, count in works.items()
            )
            work_of_tables_s = float(own.costs.each_s @ occurrences(net.depths))
            assert work_of_tables_s == pytest.approx(program_s, rel=2e-3)
