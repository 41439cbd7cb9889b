from dataclasses import replace

import mindspore
import pytest
from lazy_networks import of_lazy_blocks
from mindspore.common.initializer import Zero

from benchmarks.exactness_cases import small_config_of
from model_zoo.network import build
from ms_symtensor.bridge.apply.pipeline_network import at_batch, batch_of, micro_batch, set_stages, unset_stages
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.errors import InputError
from ms_symtensor.program.pipeline import Pipeline, runs_of


@pytest.fixture(scope="module")
def network():
    cell, inputs = build(small_config_of("llama3_8b"))
    return cell, inputs, capture(cell, *inputs)


def test_micro_batches_are_cut_along_the_first_dim(network):
    _, inputs, _ = network
    assert [i.shape for i in micro_batch(inputs, 4)] == [(16, 128)] * 3
    with pytest.raises(InputError, match=r"input 0 of shape \[64, 128\] cannot be cut into 5 micro-batches"):
        micro_batch(inputs, 5)


def test_inputs_for_another_batch(network):
    _, inputs, _ = network
    assert batch_of(inputs) == 64
    assert [i.shape for i in at_batch(inputs, 96)] == [(96, 128)] * 3
    assert at_batch(inputs, 64) == tuple(inputs)
    mask = mindspore.Tensor(shape=(1, 128), dtype=mindspore.int32, init=Zero())
    with pytest.raises(InputError, match=r"input 3 of shape \[1, 128\] is not one for 32 samples in place of 64"):
        at_batch((*inputs, mask), 32)


def test_cells_get_their_stage_and_lose_it_again(network):
    cell, _, graph = network
    before = {name: dict(owner.__dict__) for name, owner in cell.cells_and_names()}
    set_stages(cell, graph, Pipeline(runs_of((1, 1)), 2))
    stages = {n: c.pipeline_stage for n, c in cell.cells_and_names() if "_pipeline_stage" in c.__dict__}
    assert stages == {"word_embedding": 0, "layers.0": 0, "layers.1": 1, "norm": 1, "head": 1, "loss": 1}
    unset_stages(cell)
    assert {name: dict(owner.__dict__) for name, owner in cell.cells_and_names()} == before


def test_stages_written_by_hand_are_left_alone(network):
    cell, _, graph = network
    cell.norm.pipeline_stage = 1
    try:
        with pytest.raises(InputError, match="norm already has a pipeline_stage written by hand"):
            set_stages(cell, graph, Pipeline(runs_of((1, 1)), 2))
    finally:
        del cell.norm.__dict__["_pipeline_stage"]


def test_a_tied_table_is_never_sharded_by_the_optimizer():
    cell, inputs = build(replace(small_config_of("gpt2_xl"), num_layers=2))
    graph = capture(cell, *inputs)
    set_stages(cell, graph, Pipeline(runs_of((1, 1)), 2))
    assert [p.name for p in cell.get_parameters() if not p.parallel_optimizer] == ["word_embedding.table"]
    unset_stages(cell)
    assert all(p.parallel_optimizer for p in cell.get_parameters())


def test_an_interleaved_network_becomes_lazy_inline():
    cell, inputs = build(replace(small_config_of("llama3_8b"), num_layers=4))
    graph = capture(cell, *inputs)
    set_stages(cell, graph, Pipeline(runs_of((1, 1, 1, 1), interleave=2), 2))
    assert [(c.pipeline_stage, c.pipeline_segment) for c in cell.layers] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert "_cell_init_args" in cell.__dict__
    unset_stages(cell)
    assert "_cell_init_args" not in cell.__dict__


def test_of_lazy_blocks_the_network_becomes_lazy_inline():
    cell, inputs = of_lazy_blocks()
    graph = capture(cell, *inputs)
    marks = [block.cell_init_args for block in cell.blocks]
    set_stages(cell, graph, Pipeline(runs_of((2, 2)), 2))
    assert not any("_cell_init_args" in block.__dict__ for block in cell.blocks)
    assert cell.cell_init_args.startswith("lazy_inline_")
    unset_stages(cell)
    assert [block.cell_init_args for block in cell.blocks] == marks
    assert "_cell_init_args" not in cell.__dict__
