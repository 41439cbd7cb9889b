"""Predicted programs of pipeline stages. Of MindSpore's own: tests/bridge/judge/test_pipeline_exactness.py."""

from collections import Counter
from dataclasses import replace

import pytest
from zoo import small_graph

from benchmarks.exactness_cases import small_config_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, runs_of
from ms_symtensor.program.program import Phase, Role
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.program.stage_memory import MicroBatch, micro_batch, stage_activation_peak_B, stage_in_flight
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType


def programs(model="llama2_7b", layers=(2, 2), micro_batch_num=3, data=2, tensor=2, sequence=False, **settings):
    graph = small_graph(model, num_layers=sum(layers))
    cuts = megatron_strategy(graph, small_config_of(model), data, tensor, sequence)
    stage = StagePlan({n: OpStrategy(*c) for n, c in cuts.items()}, Settings(data * tensor, **settings))
    return partition_stages(graph, (stage,) * len(layers), Pipeline(runs_of(layers), micro_batch_num))


def alone(program: StageProgram) -> MicroBatch:
    return micro_batch(program.micro, program.level, program.pipeline.interleave > 1)


def counts(program: StageProgram, rank: int) -> Counter:
    return Counter((c.phase, c.kind, c.ranks) for c in program.collectives(rank))


def test_a_micro_batch_goes_forward_and_its_gradient_back():
    first, second = programs()
    ours, theirs = counts(first, 1), counts(second, 5)
    assert ours[Phase.FORWARD, "Send", (1, 5)] == ours[Phase.BACKWARD, "Receive", (1, 5)] == 3
    assert theirs[Phase.FORWARD, "Receive", (1, 5)] == theirs[Phase.BACKWARD, "Send", (1, 5)] == 3
    sizes = {
        c.input_type for p, r in ((first, 1), (second, 5)) for c in p.collectives(r) if c.kind in ("Send", "Receive")
    }
    assert {str(t) for t in sizes} == {"bfloat16[4096, 256]"}


def test_a_weight_of_the_first_stage_trains():
    """MindSpore rejects "Stage 0 should has at least 1 parameter": here the second block's train alone."""
    graph = small_graph("llama2_7b", num_layers=3)
    trained = tuple(replace(p, requires_grad=p.name.startswith("layers.1.")) for p in graph.parameters)
    graph, stage = replace(graph, parameters=trained), StagePlan({}, Settings(1))
    assert len(partition_stages(graph, (stage,) * 2, Pipeline(runs_of((2, 1)), 2))) == 2
    with pytest.raises(InvalidStrategyError, match="no weight of the first stage trains"):
        partition_stages(graph, (stage,) * 2, Pipeline(runs_of((1, 2)), 2))


def test_a_middle_stage_passes_on():
    _, middle, _ = programs(layers=(1, 1, 2), data=2, tensor=1)
    found = counts(middle, 2)
    assert found[Phase.FORWARD, "Receive", (0, 2)] == found[Phase.FORWARD, "Send", (2, 4)] == 3
    assert found[Phase.BACKWARD, "Receive", (2, 4)] == found[Phase.BACKWARD, "Send", (0, 2)] == 3


def on_a_weight(layers, interleave=1, block=("ReLU",)):
    """`relu(weight)`, cut where the weight is whole, gathered for a product with the samples; in blocks of one operator each."""
    kind, place = TensorType((16, 16), "float32"), ParameterRef("weight")
    weight = Op("Default/ReLU-op0", "ReLU", (place,), (kind,), cell=("first",), primitive="relu")
    first = Op(
        "Default/Mul-op0", "Mul", (InputRef("x"), OpOutput(weight.name)), (kind,), cell=("second",), primitive="mul"
    )
    ops, last = [weight, first], first
    for number in range(4):
        name, cell = f"Default/blocks-CellList/{number}-Block/{block[0]}-op0", ("blocks", str(number))
        inputs = (OpOutput(last.name), *map(Constant, block[1:]))
        last = Op(name, block[0], inputs, (kind,), cell=cell, primitive="work", block=f"blocks.{number}")
        ops.append(last)
    loss = Op("Default/ReduceSum-op0", "ReduceSum", (OpOutput(last.name), Constant((0, 1))), (TensorType((), "float32"),),
              cell=("sum",), primitive="sum")  # fmt: skip
    graph = Graph("Net", (("x", kind),), (Parameter("weight", kind),), (*ops, loss), OpOutput(loss.name))
    cuts = {op.name: OpStrategy(((2, 1),)) for op in (*ops, loss)} | {first.name: OpStrategy(((1, 2), (1, 2)))}
    pipeline = Pipeline(runs_of(layers, interleave), 3)
    first_stage, *_ = partition_stages(graph, (StagePlan(cuts, Settings(2)),) * pipeline.stage_num, pipeline)
    return Counter(c.kind for c in first_stage.collectives(0) if c.op == first.name and c.phase is Phase.FORWARD)


def test_what_depends_on_weights_alone_is_done_once_but_where_stages_are_interleaved():
    assert on_a_weight((2, 2)) == {"AllGather": 1}
    assert on_a_weight((1, 1, 1, 1), interleave=2) == {"AllGather": 3}


def test_beside_views_every_micro_batch_of_one_stage_does_what_depends_on_weights_alone():
    view = ("TransposeView", (0, 1))
    assert on_a_weight((4,)) == on_a_weight((2, 2), block=view) == {"AllGather": 1}
    assert on_a_weight((4,), block=view) == {"AllGather": 3}


def test_what_a_block_makes_of_weights_is_recomputed_for_every_micro_batch():
    """MindSpore has it wait for the gradients of its own micro-batch; ahead of that it is one for all."""
    kind, x, ops = TensorType((16, 16), "float32"), InputRef("x"), list[Op]()
    for number in range(2):
        block = f"blocks.{number}"
        cell, scope = ("blocks", str(number)), f"Default/blocks-CellList/{number}-Block"
        weight = Op(
            f"{scope}/ReLU-op0", "ReLU", (ParameterRef(block),), (kind,), cell=cell, primitive="relu", block=block
        )
        source = OpOutput(ops[-1].name) if ops else x
        product = Op(
            f"{scope}/Mul-op0", "Mul", (source, OpOutput(weight.name)), (kind,), cell=cell, primitive="mul", block=block
        )
        ops += [weight, product]
    loss = Op("Default/ReduceSum-op0", "ReduceSum", (OpOutput(ops[-1].name), Constant((0, 1))), (TensorType((), "float32"),),
              cell=("sum",), primitive="sum")  # fmt: skip
    weights = tuple(Parameter(f"blocks.{number}", kind) for number in range(2))
    graph = Graph("Net", (("x", kind),), weights, (*ops, loss), OpOutput(loss.name))
    cuts = {op.name: OpStrategy(((2, 1),) if op.type == "ReLU" else ((1, 2), (1, 2))) for op in ops}
    plan = StagePlan(
        cuts | {loss.name: OpStrategy(((1, 2),))}, Settings(2, recompute={b: Recompute() for b in graph.blocks})
    )
    (only,) = partition_stages(graph, (plan,), Pipeline(runs_of((2,)), 3))
    found = Counter(c.phase for c in only.collectives(0) if c.op == ops[3].name)
    assert (found[Phase.FORWARD], found[Phase.RECOMPUTE]) == (1, 3)


def test_work_is_done_for_every_micro_batch_and_gradients_are_summed_once():
    first, _ = programs()
    sums = [c for c in first.collectives(0) if c.parameter == "layers.0.attention.query.weight"]
    assert [(c.kind, c.ranks) for c in sums] == [("AllReduce", (0, 2))]
    name = "Default/layers-CellList/0-TransformerBlock/attention-SelfAttention/output-Linear/MatMul-op0"
    work = Counter(c.phase for c in first.collectives(0) if c.op == name)
    assert work == {Phase.FORWARD: 3, Phase.BACKWARD: 3}


@pytest.mark.parametrize(("level", "scatters"), [(OptimizerLevel.LEVEL1, 1), (OptimizerLevel.LEVEL2, 3)])
def test_weights_are_gathered_once_and_gradients_scattered_as_the_level_says(level, scatters):
    first, _ = programs(optimizer_level=level)
    found = Counter(c.kind for c in first.collectives(0) if c.parameter == "layers.0.attention.query.weight")
    assert found == {"AllGather": 1, "ReduceScatter": scatters}


def test_level3_is_refused():
    with pytest.raises(InvalidStrategyError, match="level3 with pipeline stages"):
        programs(optimizer_level=OptimizerLevel.LEVEL3)


def test_one_stage_accumulates_gradients_and_brings_them_together_once():
    (only,) = programs(layers=(2,), micro_batch_num=5, optimizer_level=OptimizerLevel.LEVEL1)
    assert only.ranks == range(4) and stage_in_flight(only) == 1
    work = Counter(c.phase for c in only.collectives(0) if c.parameter is None)
    assert work and all(count % 5 == 0 for count in work.values())
    assert not any(c.kind in ("Send", "Receive") for c in only.collectives(0))
    found = Counter(c.kind for c in only.collectives(0) if c.parameter == "layers.0.attention.query.weight")
    assert found == {"AllGather": 1, "ReduceScatter": 1}


def test_level2_does_not_accumulate_on_one_stage():
    with pytest.raises(InvalidStrategyError, match="level2 with gradients that add up on one stage"):
        programs(layers=(2,), micro_batch_num=2, optimizer_level=OptimizerLevel.LEVEL2)


def test_a_parameter_of_two_stages_is_sent_once_and_summed_by_the_first():
    first, last = programs("gpt2_xl", optimizer_level=OptimizerLevel.LEVEL1, parallel_optimizer_threshold_KB=0)
    name = "word_embedding.table"
    crossing = {(n.kind, n.phase): p.times(n) for p in (first, last) for n in p.micro.nodes
                if n.role is Role.BORDER and n.parameter == name}  # fmt: skip
    assert set(crossing.values()) == {1} and len(crossing) == 4
    assert first.parameters[name].mirror is not None and first.parameters[name].shard == 1
    assert last.parameters[name].mirror is None and last.parameters[name].owner == 0
    assert [c.kind for c in first.collectives(0) if c.parameter == name and c.kind == "AllReduce"] == ["AllReduce"]


def test_stages_hold_their_own_parameters():
    first, last = programs(layers=(1, 3))
    both = {*first.parameters, *last.parameters}
    assert len(both) == len(first.parameters) + len(last.parameters)
    assert {n for n in first.parameters if not n.startswith("layers.0.")} == {"word_embedding.table"}
    assert {n for n in last.parameters if not n.startswith("layers.")} == {"norm.gamma", "output_table"}


def test_early_stages_keep_more_micro_batches():
    found = programs(layers=(1, 1, 1, 1), micro_batch_num=6, data=1, tensor=1)
    assert [stage_in_flight(p) for p in found] == [4, 3, 2, 1]
    kept_B, same_B = (sum(one.kept_B.values()) for one in map(alone, found[1:3]))
    assert kept_B == same_B > 0
    assert stage_activation_peak_B(found[1]) - stage_activation_peak_B(found[2]) == kept_B
    few = programs(layers=(1, 1, 1), micro_batch_num=3, data=1, tensor=1)
    assert [stage_in_flight(p) for p in few] == [3, 2, 1]


def test_weights_in_use_stay_for_all_micro_batches():
    found = programs(layers=(1, 1), data=2, tensor=1, optimizer_level=OptimizerLevel.LEVEL1)
    first = alone(found[0])
    used_B = 2 * sum(p.layout.slice_shape[0] * p.layout.slice_shape[1] for n, p in found[0].parameters.items()
                     if n.endswith("weight"))  # fmt: skip
    table = found[0].parameters["word_embedding.table"].layout.slice_shape
    assert sum(first.weights_behind_B.values()) == used_B
    assert sum(first.weights_B.values()) == used_B + 4 * table[0] * table[1]


def test_weights_of_the_forward_pass_are_dropped_after_the_last_one():
    one = MicroBatch((5, 7, 9), (False, False, True), (None,) * 3, {None: 3}, {None: 10}, {None: 4}, (6, 0, 0), {})
    assert one.peak([(None,)], PipelineSchedule(3).passes(0, 2)).total_B == 10 + 9 + 3
    assert one.peak([(None,)], PipelineSchedule(2).passes(0, 2)).total_B == max(5 + 6 + 4 + 3, 9 + 4 + 3, 7 + 10)


@pytest.mark.parametrize(
    "chosen, copied", [(None, 11), (Recompute(only=("attention.core.flash_attention",)), 11), (Recompute(), 2)]
)
def test_micro_batches_copy_weights_of_the_type_in_use_but_in_recomputed_blocks(
    chosen: Recompute | None, copied: int
) -> None:
    recompute = {} if chosen is None else {"layers.0": chosen}
    graph = small_graph("llama2_7b", num_layers=1, compute_dtype="float32")
    program = partition(graph, StagePlan({}, Settings(1, recompute=recompute)))
    found = micro_batch(program, OptimizerLevel.NONE, interleaved=True)
    assert len(program.held & found.waits.keys()) == copied  # the norm and the head behind the block are two


def test_weights_that_micro_batches_cast_are_cast_again_in_recomputed_blocks():
    """Seven products of a block, and the head behind it, whose casts wait otherwise."""
    graph, waiting = small_graph("llama2_7b", num_layers=1), {}
    for again in (False, True):
        stage = StagePlan({}, Settings(1, recompute={"layers.0": Recompute()} if again else {}))
        program = partition(graph, stage)
        found = micro_batch(program, OptimizerLevel.NONE, interleaved=True)
        casts = {t for node in program.nodes if node.role is Role.WEIGHT for t in node.outputs}
        waiting[again] = len(casts & found.waits.keys())
    assert waiting == {False: 8, True: 1}


def test_level2_scatters_the_gradient_of_every_use():
    """DeepSeek's head is used for the next token and the one after it, both on the last stage."""
    counted = {}
    for level in (OptimizerLevel.LEVEL1, OptimizerLevel.LEVEL2):
        *_, last = programs("deepseek_v3", layers=(1, 2), data=4, tensor=1, optimizer_level=level)
        found = Counter(c.parameter for c in last.collectives(4) if c.kind == "ReduceScatter")
        counted[level] = found["output_table"], found["norm.gamma"]
    assert counted[OptimizerLevel.LEVEL1][0] == 1
    assert counted[OptimizerLevel.LEVEL2][0] == 2 * 3


def test_a_gradient_that_is_not_scattered_is_added_up_without_a_cast():
    """The optimizer does not shard a table of two stages: with level2 its gradient takes no more than with level1."""
    _, last = programs("gpt2_xl", optimizer_level=OptimizerLevel.LEVEL2)
    casts = [s for s, n in enumerate(last.micro.nodes) if n.kind == "Cast" and n.role is Role.SYNC
             and n.parameter == "word_embedding.table"]  # fmt: skip
    each, once = (micro_batch(last.micro, level, False) for level in (OptimizerLevel.LEVEL2, OptimizerLevel.LEVEL1))
    assert casts and all(each.live_B[step] == once.live_B[step] for step in casts)


def test_a_scalar_crosses_no_border():
    graph = small_graph("llama2_7b", num_layers=2)
    name = "Default/layers-CellList/0-TransformerBlock/Add-op1"
    mean = Op("mean", "ReduceMean", (OpOutput(name), Constant(())), (TensorType((), "float32"),), block="layers.0")
    total = Op("total", "Add", (OpOutput("mean"), graph.output), mean.outputs)
    at = next(i for i, op in enumerate(graph.ops) if op.name == name) + 1
    graph = replace(graph, ops=(*graph.ops[:at], mean, *graph.ops[at:], total), output=OpOutput("total"))
    cuts = megatron_strategy(small_graph("llama2_7b", num_layers=2), small_config_of("llama2_7b"), 2, 1, False)
    stage = StagePlan({n: OpStrategy(*c) for n, c in cuts.items()}, Settings(2))
    with pytest.raises(
        InvalidStrategyError, match=r"cannot be cut behind mean \(ReduceMean\): MindSpore receives a scalar"
    ):
        partition_stages(graph, (stage,) * 2, Pipeline(runs_of((1, 1)), 2))


@pytest.mark.parametrize(("runs", "gathers"), [(runs_of((4,)), 2), (runs_of((2, 2)), 2), (runs_of((1,) * 4, 2), 4)])
def test_what_a_block_gathers_of_another_one_has_a_gradient_for_each_reader_in_model_chunks(runs, gathers):
    config = replace(small_config_of("llama2_7b"), num_layers=4, branch_norm="after")
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 2, 2, True)
    stage = StagePlan({n: OpStrategy(*c) for n, c in cuts.items()}, Settings(4))
    *_, last = partition_stages(graph, (stage,) * len(runs), Pipeline(runs, 2))
    backward = (n for n in last.micro.nodes if n.kind == "ReduceScatter" and n.phase is Phase.BACKWARD)
    # Query, key and value read what the block before made; gate and up what their own block did.
    assert Counter(n.block for n in backward if n.role is Role.MOVE)[graph.blocks[-1]] == gathers
