"""Blocks that take turns, in periods."""

from dataclasses import replace

import pytest

from ms_symtensor.search.folded.alternating import merge_period, separated
from ms_symtensor.search.folded.folding import fold, shorten
from ms_symtensor.search.folded.places import places
from tests.strategy.plans import small_graph


def network(kinds):
    """A network of blocks of these kinds, one letter for each block."""
    graph = small_graph("llama2_7b", num_layers=len(kinds))
    ops = (
        op if op.block is None else replace(op, attributes=(*op.attributes, ("kind", kinds[int(op.block[7:])])))
        for op in graph.ops
    )
    return replace(graph, ops=tuple(ops))


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ("aaaa", "a a a a"),
        ("aabb", "a a b b"),
        ("ababab", "ab ab ab"),
        ("xabab", "x ab ab"),
        ("aabaabaa", "aab aab a a"),
        ("ababcdcd", "ab ab cd cd"),
        ("aababab", "a ab ab ab"),
        ("abab" * 2 + "cc", "ab ab ab ab c c"),
        ("abba", "a b b a"),
        ("abcacb", "a b c a c b"),
    ],
)
def test_periods_are_taken_for_one(kinds, found):
    graph = network(kinds)
    together = merge_period(graph)
    periods = dict.fromkeys(op.period or op.block for op in together.ops if op.block is not None)
    blocks = ["".join(kinds[int(name[7:])] for name in names.split("+")) for names in periods]
    assert " ".join(blocks) == found
    assert separated(together) == graph
    assert (together is graph) == (len(blocks) == len(kinds))


def test_the_blocks_of_a_period_are_of_a_kind_each():
    folded = fold(merge_period(network("cababab")))
    kinds = (("layers.0",), ("layers.1", "layers.3", "layers.5"), ("layers.2", "layers.4", "layers.6"))
    assert folded.kinds == kinds and folded.turns == (1, 2)
    assert {len(members) for members in folded.members} == {1, 3}


@pytest.mark.parametrize("kinds", ["aaaa", "ababab", "aababab", "ababcdcd", "aabaab"])
def test_places_know_the_order_of_blocks(kinds):
    graph = merge_period(network(kinds))
    assert places(graph, fold(graph)).blocks == graph.blocks


def test_identical_blocks_of_a_period_share_their_layouts():
    graph = merge_period(network("aabaabaab"))
    folded = fold(graph)
    assert folded.turns == (3,) and {len(members) for members in folded.members} == {1, 3, 6}
    short = shorten(graph, folded, 2)
    assert short.blocks == ("layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "layers.5")
    assert fold(short).turns == (3,)
