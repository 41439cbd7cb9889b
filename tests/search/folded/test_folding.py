"""Equal blocks become one, and short networks stand for long ones."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import BlockKind
from ms_symtensor.search.folded.folding import fold, shorten
from ms_symtensor.tensor.graph import OpOutput
from tests.strategy.plans import small_graph

MODELS = ("llama2_7b", "llama3_8b", "gpt2_xl", "bert_large")


@pytest.mark.parametrize("model", MODELS)
def test_layers_fold_into_one(model):
    short, long = (fold(small_graph(model, num_layers=n)) for n in (2, 6))
    assert len(short.members) == len(long.members)
    assert sorted({len(m) for m in long.members}) == [1, 6]
    assert set(long.class_of) == {op.name for op in small_graph(model, num_layers=6).ops}


def test_members_of_a_class_are_alike_and_in_order():
    graph = small_graph("llama2_7b", num_layers=3)
    position = {op.name: i for i, op in enumerate(graph.ops)}
    for members in fold(graph).members:
        assert len({(op.type, op.outputs) for op in members}) == 1
        assert [position[op.name] for op in members] == sorted(position[op.name] for op in members)


def test_a_block_that_differs_keeps_classes_of_its_own():
    graph = small_graph("llama2_7b", num_layers=3)
    other = next(op for op in graph.ops if op.block == "layers.1" and op.type == "RmsNorm")
    changed = replace(other, attributes=(*other.attributes, ("note", 1)))
    folded = fold(replace(graph, ops=tuple(changed if op is other else op for op in graph.ops)))
    counts = {len(folded.members[folded.class_of[op.name]]) for op in graph.ops if op.block == "layers.1"}
    assert counts == {1}
    assert tuple(name for names in folded.kinds for name in names) == ("layers.0", "layers.2")


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ("abb", ["a", "bb"]),
        ("aab", ["aa", "b"]),
        ("aabcc", ["aa", "b", "cc"]),
        ("aaba", ["aaa"]),
        ("abab", ["aa", "bb"]),
        ("ab", []),
    ],
)
def test_a_block_like_no_other_is_a_kind_of_one_unless_it_stands_between_two_of_a_kind(kinds, found):
    graph = small_graph("llama2_7b", num_layers=len(kinds))
    ops = tuple(
        op if op.block is None else replace(op, attributes=(*op.attributes, ("kind", kinds[int(op.block[7:])])))
        for op in graph.ops
    )
    names = fold(replace(graph, ops=ops)).kinds
    assert ["".join(kinds[int(name[7:])] for name in of_kind) for of_kind in names] == found


@pytest.mark.parametrize("model", MODELS)
def test_two_layers_stay_two_layers(model):
    graph = small_graph(model, num_layers=2)
    assert shorten(graph, fold(graph), 2) is graph


@pytest.mark.parametrize("keep", (2, 3))
@pytest.mark.parametrize("model", MODELS)
def test_a_long_network_shortens_to_the_short_one(model, keep):
    long, direct = small_graph(model, num_layers=6), small_graph(model, num_layers=keep)
    assert nameless(shorten(long, fold(long), keep)) == nameless(direct)


def nameless(graph):
    """The graph with its operators numbered: MindSpore's names count operators of one scope over the whole network."""
    number = {op.name: str(i) for i, op in enumerate(graph.ops)}

    def renamed(source):
        return OpOutput(number[source.op], source.index) if isinstance(source, OpOutput) else source

    ops = tuple(replace(op, name=number[op.name], inputs=tuple(map(renamed, op.inputs))) for op in graph.ops)
    return replace(graph, ops=ops, output=renamed(graph.output))


def test_a_block_that_is_frozen_is_another_than_one_that_trains():
    graph = small_graph("llama2_7b", num_layers=4)
    frozen = tuple(replace(p, requires_grad=not p.name.startswith("layers.0.")) for p in graph.parameters)
    assert sorted({len(m) for m in fold(replace(graph, parameters=frozen)).members}) == [1, 3]


def test_dense_blocks_and_blocks_with_experts_are_two_kinds():
    graph = build_graph(dimensions_of("deepseek_v3", num_layers=7))
    folded = fold(graph)
    dense = tuple(f"layers.{i}" for i in range(3))
    assert folded.kinds == (dense, tuple(f"layers.{i}" for i in range(3, 7)))
    assert nameless(shorten(graph, folded, 3)) == nameless(build_graph(dimensions_of("deepseek_v3", num_layers=6)))


def test_blocks_with_and_without_a_window_are_two_kinds():
    """They differ in nothing but numbers that attention takes."""
    kinds = (BlockKind(window=64), BlockKind()) * 2
    graph = build_graph(replace(dimensions_of("llama2_7b", num_layers=4, seq_length=512), kinds=kinds))
    assert fold(graph).kinds == (("layers.0", "layers.2"), ("layers.1", "layers.3"))
