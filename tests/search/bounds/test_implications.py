"""What implies what where parts of a block are made again."""

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.search.bounds.implications import implications
from ms_symtensor.search.bounds.reads import Reads
from tests.search.problems import problem


@pytest.fixture(scope="module")
def experts():
    """A network whose router computes in float32 what a norm has computed so, and cast to bfloat16."""
    graph = build_graph(dimensions_of("qwen3_30b_a3b", num_layers=3, batch_size=8))
    of = problem(graph, load("atlas_800t_a2"), (4, 2))
    return of, implications(of)


def _name(of, number):
    return of.known.items[number].op.name.rsplit("TransformerBlock/")[-1]


def test_a_cast_of_a_cast_needs_the_first_one(experts):
    of, items = experts
    (cast,) = (
        number for number, one in enumerate(items.casts) if _name(of, one.number).startswith("feed_forward_norm")
    )
    users = [item for item, other in items.crossing if other == ("cast", cast)]
    readers = {_name(of, items.scope(user)[-1]).split("/")[0] for user in users}
    assert {kind for kind, _ in users} == {"moved", "joint", "brought"} and readers == {"feed_forward-MixtureOfExperts"}
    (needed,) = (other for item, other in items.crossing if item == ("recast", cast))
    assert needed[0] == "needed" and items.needed[needed[1]].number == items.casts[cast].number


def test_what_is_cast_there_and_back_is_not_the_output(experts):
    of, items = experts
    (norm,) = {one.number for one in items.casts if _name(of, one.number).startswith("feed_forward_norm")}
    assert ((norm, "out", 0), "float32") not in Reads(of).anywhere
    assert any(one.number == norm for one in items.needed)


def test_what_is_moved_to_a_product_goes_with_its_sum(experts):
    of, items = experts
    assert items.joint
    for number in items.joint:
        place, copy = items.moved[number]
        reader, there = copy.summing
        assert (("joint", number), ("summed", reader)) in items.crossing
        assert (("made", reader), ("summed", reader)) in items.crossing
        moved = {one.item[0]: (one.again_s, one.size_B) for one in items.moved_again if one.item[1] == number}
        for part, whole in enumerate((copy.again_s, copy.size_B)):
            assert (moved["joint"][part][~there] == 0).all() and (moved["moved"][part][there] == 0).all()
            assert (moved["joint"][part] + moved["moved"][part] == whole).all()
        others = tuple(axis + 1 for axis, v in enumerate(items.copies[place].scope) if v != reader)
        assert (there.any(axis=others) <= (of.known.items[reader].combine_s > 0)).all()
