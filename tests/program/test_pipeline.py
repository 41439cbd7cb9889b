import pytest
from zoo import small_graph

from ms_symtensor.errors import InputError
from ms_symtensor.program.pipeline import Pipeline, runs_of, stages_of_ops


def test_runs_are_dealt_out_round_the_stages():
    assert runs_of((1, 3)) == ((range(0, 1),), (range(1, 4),))
    two = Pipeline(runs_of((1, 2, 3, 4), interleave=2), 2)
    assert two.layers == ((range(0, 1), range(3, 6)), (range(1, 3), range(6, 10)))
    assert two.runs == (range(0, 1), range(1, 3), range(3, 6), range(6, 10))
    assert [two.stage_of(layer) for layer in range(10)] == [0, 1, 1, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("layers", "micro_batch_num", "message"),
    [
        ((4,), 1, "1 stages and 1 micro-batches"),
        ((2, 0), 4, "at least one layer"),
        ((2, 2), 1, "1 micro-batches for 2"),
    ],
)
def test_what_mindspore_cannot_run_is_refused(layers, micro_batch_num, message):
    with pytest.raises(InputError, match=message):
        Pipeline(runs_of(layers), micro_batch_num)


@pytest.mark.parametrize("name", ["llama2_7b", "gpt2_xl", "bert_large"])
def test_operators_lie_where_their_inputs_come_from(name):
    graph = small_graph(name, num_layers=4)
    runs_on = stages_of_ops(graph, Pipeline(runs_of((1, 1, 2)), 3))
    assert [runs_on[op.name] for op in graph.ops if op.type == "Gather"] == [{0}] * (
        {"llama2_7b": 1, "gpt2_xl": 2, "bert_large": 3}[name]
    )
    of_block = {b: n for b, n in zip(graph.blocks, (0, 1, 2, 2), strict=True)}
    for op in graph.ops:
        if op.block is not None:
            assert runs_on[op.name] == {of_block[op.block]}
        if op.cell and op.cell[0] in ("head", "loss"):
            assert runs_on[op.name] == {2}
    assert all(runs_on.values())


def test_another_number_of_layers_is_refused():
    with pytest.raises(InputError, match="lays out 3 layers, but .* has 2 repeated blocks"):
        stages_of_ops(small_graph("llama2_7b", num_layers=2), Pipeline(runs_of((1, 2)), 2))
