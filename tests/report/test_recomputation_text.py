"""Which blocks are recomputed, in words."""

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.program.settings import Recompute
from ms_symtensor.report.recomputation import recomputation_text


def test_blocks_that_follow_each_other_are_one_run() -> None:
    graph = build_graph(dimensions_of("llama2_7b", num_layers=6, batch_size=1))
    names = graph.blocks
    text = recomputation_text(graph, {names[number]: Recompute() for number in (0, 1, 2, 4)}, ())
    assert "layers.0 … 2, layers.4 (4 blocks): everything" in text
