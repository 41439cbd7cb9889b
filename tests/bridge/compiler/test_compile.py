"""Programs of one rank, compiled for Ascend by MindSpore itself."""

from collections import Counter

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.nn.utils import no_init_parameters

from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiled.collectives import collectives, describe, is_recomputed
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.errors import CompilerError
from ms_symtensor.tensor.graph import OpOutput, ParameterRef, TensorType, TupleInput
from ms_symtensor.tensor.layout import Layout
from tests.bridge.networks import HIDDEN, INNER, LAYERS, TOKENS, Net, Undividable, empty

RANK, TENSOR_GROUP, DATA_GROUP, WORLD = 5, (4, 5, 6, 7), (1, 5), tuple(range(8))
OPTIMIZER_SHARD = {"enable_parallel_optimizer": True, "parallel_optimizer_threshold": 0}


@pytest.fixture(scope="module")
def net():
    with no_init_parameters():
        return Net(dp=2, mp=4)


def program_of(net, optimizer=None, inline_blocks=False, rank=RANK, **settings):
    inputs = empty(TOKENS, dtype=ms.int32), ms.Tensor(np.float32(1))
    cell = training_cell(net, optimizer)
    config = ParallelConfig(**settings)
    return compile_rank(cell, *inputs, device_num=8, rank=rank, parallel=config, inline_blocks=inline_blocks)


@pytest.fixture(scope="module")
def program(net):
    return program_of(net)


def kinds(program, **wanted):
    found = (c for c in collectives(program) if all(getattr(c, name) == value for name, value in wanted.items()))
    return Counter((c.kind, c.ranks, c.output.shape) for c in found)


def test_tensor_parallel_sums(program):
    row_cut = {("AllReduce", TENSOR_GROUP, (TOKENS // 2, HIDDEN)): LAYERS}
    assert kinds(program, backward=False) == {**row_cut, ("AllReduce", DATA_GROUP, ()): 1}
    activations = kinds(program, backward=True, parameter=None)
    assert activations[("AllReduce", TENSOR_GROUP, (TOKENS // 2, HIDDEN))] == LAYERS


def test_gradients_are_summed_over_the_copies(program):
    summed = {c.parameter: (c.kind, c.ranks, c.output.shape) for c in collectives(program) if c.parameter}
    assert summed["layers.2.up_weight"] == ("AllReduce", DATA_GROUP, (INNER // 4, HIDDEN))
    assert summed["layers.0.gamma"] == ("AllReduce", WORLD, (HIDDEN,))
    assert set(summed) == {parameter for parameter, _ in program.graph.parameters}


def test_bytes_and_types(program):
    down = next(c for c in collectives(program) if c.name.endswith("1-Block/AllReduce-op0"))
    assert down.input == down.output == TensorType((TOKENS // 2, HIDDEN), "float16")
    assert down.input_B == down.output_B == TOKENS // 2 * HIDDEN * 2
    assert (down.reduction, down.recomputed, down.fusion) == ("sum", False, 0)


def test_layouts(program):
    up = program.layout_by_name["layers.1.up_weight"]
    assert up.layout == Layout((2, 4), (0, -1), (INNER, HIDDEN))
    assert up.slice_type == TensorType((INNER // 4, HIDDEN), "float16")
    assert up.optimizer_shard_ranks == ()


def test_output_is_loss_and_gradients_in_the_order_of_the_parameters(net, program):
    loss, gradients = program.graph.output.items
    assert isinstance(loss, OpOutput)
    assert isinstance(gradients, TupleInput)
    shapes = [program.type_of(source).shape for source in gradients.items]
    assert shapes == [program.layout_by_name[p.name].slice_type.shape for p in net.trainable_params()]


def test_shared_blocks_appear_once_per_call_with_its_names(program):
    names = [node.name for node in program.nodes]
    assert len(set(names)) == len(names)
    for layer in range(LAYERS):
        node = program.node_by_name[f"Default/network-Net/layers-CellList/{layer}-Block/MatMul-op0"]
        assert ParameterRef(f"layers.{layer}.up_weight") in node.inputs


def test_names_do_not_depend_on_what_was_captured_before(net, program):
    names = [node.name for node in program.nodes]
    capture(net, empty(TOKENS, dtype=ms.int32))
    assert [node.name for node in program_of(net).nodes] == names
    assert all("Default/network-Net/" in name for name in names)


def test_shared_blocks_compile_to_what_single_ones_do(net, program):
    single = program_of(net, inline_blocks=True)
    assert kinds(single) == kinds(program)
    assert Counter(node.type for node in single.nodes) == Counter(node.type for node in program.nodes)
    assert single.layouts == program.layouts


def test_sources_are_earlier_nodes(program):
    seen = set()
    for node in program.nodes:
        for source in node.inputs:
            assert not isinstance(source, OpOutput) or source.op in seen
        seen.add(node.name)


def test_optimizer_sharding(net):
    program = program_of(net, **OPTIMIZER_SHARD, optimizer_level="level1")
    up = program.layout_by_name["layers.1.up_weight"]
    assert up.optimizer_shard_ranks == DATA_GROUP
    assert up.slice_type.shape == (INNER // 8, HIDDEN)
    gathered = [c for c in collectives(program) if c.kind == "AllGather" and c.parameter == "layers.1.up_weight"]
    assert [(c.ranks, c.output.shape) for c in gathered] == [(DATA_GROUP, (INNER // 4, HIDDEN))]
    scattered = kinds(program, kind="ReduceScatter", backward=True)
    assert scattered[("ReduceScatter", DATA_GROUP, (INNER // 8, HIDDEN))] == 2 * LAYERS  # of up and down: equal slices


def test_a_threshold_does_not_outlive_its_compile(net):
    sharded = {**OPTIMIZER_SHARD, "parallel_optimizer_threshold": 1 << 20}
    assert not any(layout.optimizer_shard_ranks for layout in program_of(net, **sharded).layouts)
    assert all(parameter.parallel_optimizer for parameter in net.get_parameters())


def test_optimizer_states_lie_like_their_weights(net):
    with no_init_parameters():
        optimizer = nn.AdamWeightDecay(net.trainable_params())
    program = program_of(net, optimizer, **OPTIMIZER_SHARD)
    layouts = program.layout_by_name
    assert layouts["adam_m.layers.0.up_weight"].slice_type.shape == layouts["layers.0.up_weight"].slice_type.shape
    assert sum(node.type == "AdamWeightDecay" for node in program.nodes) == len(net.trainable_params())


def test_level3_gathers_weights_again_in_the_backward_pass(net):
    program = program_of(net, inline_blocks=True, **OPTIMIZER_SHARD, optimizer_level="level3")
    gathered = Counter(c.parameter for c in collectives(program) if c.kind == "AllGather" and c.parameter)
    assert gathered["layers.1.up_weight"] == 2


def test_recompute_marks_its_copies():
    with no_init_parameters():
        net = Net()
    for layer in net.layers:
        layer.recompute()
    program = program_of(net)
    norms = [node for node in program.nodes if node.type == "RmsNorm"]
    assert [is_recomputed(node) for node in norms] == [False] * LAYERS + [True] * LAYERS
    # the sum of down's partial results is not needed again, so only operators before it run twice
    assert sum(is_recomputed(node) for node in program.nodes if node.type == "MatMul") == LAYERS
    assert not any(c.recomputed for c in collectives(program))
    assert norms[1].name == "recompute_Default/network-Net/layers-CellList/1-Block/RmsNorm-op0"


def test_same_cell_again_with_other_strategies_and_back(net, program):
    for layer in net.layers:
        layer.up.shard(((8, 1), (1, 1)))
        layer.relu.shard(((8, 1),))
        layer.down.shard(((8, 1), (1, 1)))
    try:
        other = program_of(net)
    finally:
        for layer in net.layers:
            layer.up.shard(((2, 1), (4, 1)))
            layer.relu.shard(((2, 4),))
            layer.down.shard(((2, 4), (1, 4)))
    assert kinds(other) != kinds(program)
    assert kinds(program_of(net)) == kinds(program)
    assert all(parameter.has_init and not parameter.sliced for parameter in net.get_parameters())


def test_every_rank_sees_its_own_groups(net):
    program = program_of(net, rank=2)
    assert {c.ranks for c in collectives(program)} == {(0, 1, 2, 3), (2, 6), WORLD}


def test_forward_network_alone(net):
    program = compile_rank(net, empty(TOKENS, dtype=ms.int32), device_num=8, rank=RANK)
    assert not any(c.backward for c in collectives(program))


def test_description_names_collectives_and_parameters(program):
    text = describe(program)
    assert "rank 5 of 8" in text
    assert "AllReduce     [4 5 6 7]" in text
    assert "layers.0.up_weight: (256, 64) on (2, 4) by (0, -1) -> float16[64, 64]" in text


def test_refusals_tell_the_compilers_reason():
    with pytest.raises(CompilerError, match=r"cannot be divisible by strategy value 3.*networks\.py") as caught:
        compile_rank(Undividable(), empty(64, 32), device_num=8)
    assert "\n" not in str(caught.value)


def test_refused_settings():
    with pytest.raises(CompilerError, match="refuses the parallel settings"):
        compile_rank(Undividable(), empty(64, 32), device_num=8, parallel=ParallelConfig(parallel_mode="magic"))


def test_states_on_the_host_leave_the_compiled_update_as_it_is(net):
    """Their copies are the run-time's: otherwise `cost.parameter` would price them beside the compiler's."""
    steps = []
    for swapped in (False, True):
        with no_init_parameters():
            optimizer = nn.AdamWeightDecay(net.trainable_params())
        if swapped:
            for state in (*optimizer.moments1, *optimizer.moments2):
                state._set_user_data("parameter_device", "CPU")  # as Parameter(…, device="CPU") does
        steps.append(program_of(net, optimizer, **OPTIMIZER_SHARD))
    kept, swapped = ([(n.type, n.name, n.outputs) for n in step.nodes] for step in steps)
    assert kept == swapped
    assert sum(node.type == "AdamWeightDecay" for node in steps[1].nodes) == len(net.trainable_params())
