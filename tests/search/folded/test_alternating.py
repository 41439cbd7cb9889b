"""Periods of blocks as one block, and back."""

from dataclasses import replace

import pytest

from ms_symtensor.program.recomputation import name_in_block, of_part
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.search.folded.alternating import joint_stage, merge_period, separated
from ms_symtensor.search.folded.folding import fold
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
    blocks = ["".join(kinds[int(name[7:])] for name in names.split("+")) for names in together.blocks]
    assert " ".join(blocks) == found
    assert separated(together) == graph
    assert (together is graph) == (len(blocks) == len(kinds))


def test_a_joined_block_is_one_for_its_fold():
    folded = fold(merge_period(network("ababab")))
    assert folded.kinds == (("layers.0+layers.1", "layers.2+layers.3", "layers.4+layers.5"),)
    assert {len(members) for members in folded.members} == {1, 3}


def test_what_a_joined_block_makes_again_is_told_part_by_part():
    together = merge_period(network("abab"))
    names = {op.part: name_in_block(op) for op in together.ops if op.primitive == "add_attention"}
    assert names["layers.0"] == "0.add_attention" and names["layers.3"] == "1.add_attention"
    whole, kept, only = Recompute(), Recompute(kept=("0.add_attention", "1.x.y")), Recompute(only=("1.add_attention",))
    assert [of_part(whole, n) for n in (0, 1)] == [whole, whole]
    assert [of_part(kept, n) for n in (0, 1)] == [Recompute(kept=("add_attention",)), Recompute(kept=("x.y",))]
    assert [of_part(only, n) for n in (0, 1)] == [None, Recompute(only=("add_attention",))]


def test_what_is_recomputed_alike_in_a_period_is_that_of_the_joined_block():
    together = merge_period(network("abababab"))

    def joined(recompute):
        found = joint_stage(StagePlan({}, Settings(8, recompute=recompute)), together)
        return found and dict(found.settings.recompute)

    blocks = [f"layers.{n}" for n in range(8)]
    assert joined(dict.fromkeys(blocks, Recompute())) == dict.fromkeys(together.blocks, Recompute())
    assert joined(dict.fromkeys(blocks[:2], Recompute())) == {together.blocks[0]: Recompute()}
    assert joined({}) == {}
    assert joined({blocks[0]: Recompute()}) is None
    kept = Recompute(kept=("feed_forward.up.matmul",))
    both = Recompute(kept=("0.feed_forward.up.matmul", "1.feed_forward.up.matmul"))
    assert joined(dict.fromkeys(blocks, kept)) == dict.fromkeys(together.blocks, both)
    assert joined({blocks[0]: kept, blocks[1]: Recompute()}) == {
        together.blocks[0]: Recompute(kept=("0.feed_forward.up.matmul",))
    }
    assert joined({blocks[0]: kept}) is None
    assert joined({blocks[1]: Recompute(only=("feed_forward.up.matmul",))}) == {
        together.blocks[0]: Recompute(only=("1.feed_forward.up.matmul",))
    }
