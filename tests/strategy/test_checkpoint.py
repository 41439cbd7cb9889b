import json

from plans import data_times_tensor, hand_written, plan_of, small_graph

from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.strategy.checkpoint import checkpoint_json, checkpoint_protobuf, strategy_checkpoint


def fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """A protobuf message as (field number, number or content), read by the public wire format."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    found, at = [], 0
    while at < len(message):
        key, at = varint(at)
        if key & 7 == 0:
            value, at = varint(at)
            found.append((key >> 3, value - (1 << 64) if value >> 63 else value))
        else:
            length, at = varint(at)
            found.append((key >> 3, message[at : at + length]))
            at += length
    return found


def checkpoint(level: int, **settings):
    graph = small_graph("llama2_7b", attention="self")
    plan = plan_of(graph, data_times_tensor(graph, 2, 4), 8, optimizer_level=OptimizerLevel(level), **settings)
    return strategy_checkpoint(graph, plan.stage, partition(graph, plan.stage).parameters)


def test_layouts_leave_axes_of_size_one_out():
    layouts = checkpoint(0)["parallel_layout_item"]
    assert layouts["layers.0.attention.query.weight"] == {
        "dev_matrix": [2, 4], "field": 0, "opt_weight_shard_size": 0, "opt_weight_shard_step": 0,
        "tensor_map": [0, -1], "tensor_shape": [256, 256],
    }  # fmt: skip
    assert layouts["layers.0.attention.output.weight"]["tensor_map"] == [-1, 0]


def test_optimizer_sharding_is_noted_with_its_stride():
    layouts = checkpoint(1)["parallel_layout_item"]
    sharded = layouts["layers.0.attention.query.weight"]
    assert (sharded["opt_weight_shard_size"], sharded["opt_weight_shard_step"]) == (-1, 4)
    assert layouts["norm.gamma"]["opt_weight_shard_step"] == 0  # below the threshold


def test_optimizer_states_lie_as_their_parameters():
    graph, plan = hand_written("llama2_7b", 2, 4, attention="self")
    layouts = strategy_checkpoint(graph, plan.stage, partition(graph, plan.stage).parameters, ("adam_m", "adam_v"))[
        "parallel_layout_item"
    ]
    assert len(layouts) == 3 * len(graph.parameters)
    assert layouts["adam_v.norm.gamma"] == layouts["norm.gamma"]


def test_strategies_stand_under_operator_and_parameter():
    found = checkpoint(0)["parallel_strategy_item"]
    assert found["MatMul_output_table"] == {"parallel_strategy": [[2, 1], [4, 1]], "stage": 0}
    assert found["Gather_word_embedding.table"]["parallel_strategy"] == [[4, 1], [2, 1]]


def test_json_keys_are_sorted():
    text = checkpoint_json(checkpoint(1))
    for item in ("parallel_layout_item", "parallel_strategy_item"):
        assert list(json.loads(text)[item]) == sorted(json.loads(text)[item])


def test_the_protobuf_holds_the_same():
    data = checkpoint(1)
    message = fields(checkpoint_protobuf(data))
    assert message[0] == (1, data["current_stage"])
    layouts = {}
    for name, content in ([value for _, value in fields(part)] for number, part in message if number == 3):
        parts = dict(fields(content))
        layouts[name.decode()] = {
            "dev_matrix": [value for _, value in fields(parts[1])],
            "tensor_map": [value for _, value in fields(parts[2])],
            "field": parts[5],
            "opt_weight_shard_step": parts[6],
            "opt_weight_shard_size": parts[7],
        }
        assert parts[3] == parts[4] == b""
    expected = {
        n: {k: v for k, v in item.items() if k != "tensor_shape"} for n, item in data["parallel_layout_item"].items()
    }
    assert layouts == expected
    strategies = {}
    for name, content in ([value for _, value in fields(part)] for number, part in message if number == 2):
        degrees = [[d for _, d in fields(part)] for number, part in fields(content) if number == 2]
        strategies[name.decode()] = {"parallel_strategy": degrees, "stage": dict(fields(content))[1]}
    assert strategies == data["parallel_strategy_item"]
