import gc
import weakref

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.garbage_collection import has_frozen, no_garbage_collection
from ms_symtensor.models import planned, resolve
from ms_symtensor.search.constraints.request import Request


def test_it_is_off_inside_and_on_again_afterwards_even_if_something_fails() -> None:
    with pytest.raises(ValueError, match="inside"), no_garbage_collection(), no_garbage_collection():
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with no_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_made_inside_counts_as_old() -> None:
    with no_garbage_collection():
        made = [[] for _ in range(10)]
    assert {id(one) for one in made} <= {id(one) for one in gc.get_objects(generation=2)}


def test_what_was_made_before_is_not_looked_through_inside() -> None:
    class Node:
        pass

    node = Node()
    node.itself, gone = node, weakref.ref(node)
    with no_garbage_collection():
        del node
        gc.collect()
        assert gone() is not None
    gc.collect()
    assert gone() is None
    assert not has_frozen()


def test_what_somebody_has_frozen_stays_so() -> None:
    assert not has_frozen()  # Python 3.12 counts its own immortal objects as frozen
    gc.freeze()
    try:
        with no_garbage_collection():
            assert has_frozen()
        assert has_frozen()
    finally:
        gc.unfreeze()
    assert not has_frozen()


@pytest.mark.parametrize(("name", "batch"), [("llama2_7b", 8), ("llama2_13b", 32)])
def test_a_search_leaves_no_cycles_behind(name: str, batch: int) -> None:
    """Else what it has made would stay until all objects of the process are looked through. One stage, and several."""
    model, cluster = resolve(name, batch), load("atlas_800t_a2")
    request = Request(cluster, 8, batch, model.seq_length, int(cluster.device.hbm_usable_B))
    planned(model, request)  # SymPy leaves some where formulas are used for the first time
    gc.collect()
    with no_garbage_collection():
        planned(model, request)
        assert gc.collect() == 0
