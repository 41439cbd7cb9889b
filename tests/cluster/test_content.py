"""Clusters as data, and back."""

import json
import re
from pathlib import Path

import pytest

from ms_symtensor.cluster.content import to_content
from ms_symtensor.cluster.load import from_content, is_known, known_clusters, load
from ms_symtensor.errors import InputError


@pytest.mark.parametrize("name", known_clusters())
def test_a_cluster_is_what_its_content_says(name):
    cluster = load(name)
    assert from_content(json.loads(json.dumps(to_content(cluster))), "the plan") == cluster


def test_what_a_file_left_out_stays_so():
    content = to_content(load("atlas_800t_a2"))
    del content["host"], content["device"]["attention_head_dim"]
    cluster = from_content(content, "mine")
    assert cluster.host is None and to_content(cluster) == content
    with pytest.raises(InputError, match="mine: device: entry 'l2_B' is missing"):
        from_content({**content, "device": {k: v for k, v in content["device"].items() if k != "l2_B"}}, "mine")


def test_a_changed_copy_is_not_the_known_cluster():
    content = to_content(load("atlas_800t_a2"))
    assert is_known(from_content(content, "copy"))
    content["device"]["cube_peak_FLOPs"]["value"] = 300e12
    assert not is_known(from_content(content, "copy"))
    assert not is_known(from_content({**content, "name": "mine"}, "copy"))


def test_the_page_of_cluster_files_names_the_units_of_their_keys():
    page = Path(__file__).parents[2] / "docs" / "reference" / "cluster_file.md"
    (line,) = [line for line in page.read_text(encoding="utf-8").splitlines() if "carries its unit" in line]
    keys = [
        key
        for name in known_clusters()
        for part in to_content(load(name)).values()
        if isinstance(part, dict)
        for key in part
    ]
    assert {unit for unit in re.findall(r"`(_\w+)`", line) if not any(key.endswith(unit) for key in keys)} == set()
