"""Few samples of long sequences: how attention is shared out among devices."""

import pytest

from model_zoo.builder import build_graph
from model_zoo.dimensions import dimensions_of
from ms_symtensor.cluster.load import load
from ms_symtensor.program.partition import partition
from ms_symtensor.search.one_stage.long_sequences import attention_meshes
from ms_symtensor.search.plan import plan

A2 = load("atlas_800t_a2")


def network(model, batch, seq_length=32768, **more):
    return build_graph(dimensions_of(model, num_layers=2, batch_size=batch, seq_length=seq_length, **more))


@pytest.mark.parametrize(
    ("model", "batch", "device_num", "expected"),
    [
        ("llama3_8b", 4, 64, ((8, 4, 2),)),  # 4 samples, 8 key-value heads
        ("llama3_8b", 16, 1024, ((16, 8, 8),)),
        ("llama2_13b", 4, 64, ((8, 4, 2),)),  # 40 heads, of which 8 ranks take equal shares
        ("llama2_7b", 4, 64, ()),  # 32 heads: two axes do
        ("llama3_8b", 64, 64, ()),
        ("llama3_8b", 1, 64, ()),
        ("llama3_8b", 2, 8, ()),  # on 8 devices all meshes are searched as it is
    ],
)
def test_an_axis_for_samples_heads_and_sequence(model, batch, device_num, expected):
    assert attention_meshes(network(model, batch), device_num) == expected


def test_attention_of_plain_operators_has_no_such_mesh():
    assert attention_meshes(network("llama3_8b", 4, 1024, attention="self"), 64) == ()


@pytest.mark.parametrize(("device_num", "batch", "heads", "sequence"), [(8, 1, 8, 1), (64, 4, 8, 2)])
def test_ulysses_emerges(device_num, batch, heads, sequence):
    """Products cut the tokens, attention the heads as far as they go, and what lies between is exchanged by AlltoAll."""
    graph = network("llama3_8b", batch)
    found = plan(graph, A2, device_num=device_num, global_batch_size=batch, seq_length=32768)
    assert (found.data_parallel, found.context_parallel, found.model_parallel) == (batch, heads * sequence, 1)
    attention = {found.strategies[op.name].inputs[0] for op in graph.ops if op.type == "FlashAttentionScore"}
    assert attention == {(batch, sequence, heads, 1)}
    moves = [c for c in partition(graph, found.stage).collectives() if "attention" in c.op and c.kind == "AlltoAll"]
    assert heads in {len(c.ranks) for c in moves}
