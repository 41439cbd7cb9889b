import hashlib
from dataclasses import replace

import pytest
from plans import hand_written

from ms_symtensor.cluster.content import to_content
from ms_symtensor.cluster.load import known_clusters, load
from ms_symtensor.strategy import digest
from ms_symtensor.strategy.file import to_json


def test_it_is_sha_256():
    assert digest.of_content("a plan") == digest.of_content(b"a plan") == hashlib.sha256(b"a plan").hexdigest()


def test_equal_data_has_one_digest_whatever_the_order_of_keys():
    assert digest.of_data({"b": [1, 2.5], "a": None}) == digest.of_data({"a": None, "b": [1, 2.5]})
    assert len({digest.of_data(one) for one in (1, 1.5, "1", [1], {"1": 1}, True, None)}) == 7
    with pytest.raises(ValueError):
        digest.of_data({"x": float("nan")})


def test_plans_and_clusters_that_differ_in_anything_have_different_digests():
    _, plan = hand_written("llama2_7b", 2, 4)
    others = (replace(plan, seq_length=256), replace(plan, cluster="atlas_800t_a3"), replace(plan, fixed={"x": "1"}))
    assert len({digest.of_data(to_json(one)) for one in (plan, *others)}) == 4
    assert len({digest.of_data(to_content(load(name))) for name in known_clusters()}) == len(known_clusters())
