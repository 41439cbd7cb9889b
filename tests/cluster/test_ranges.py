from ms_symtensor.cluster.content import to_content
from ms_symtensor.cluster.load import from_content, known_clusters, load
from ms_symtensor.cluster.ranges import outside_ranges


def test_known_clusters_keep_to_their_ranges():
    assert {outside_ranges(load(name)) for name in known_clusters()} == {""}


def test_values_outside_their_range_are_named():
    content = to_content(load("atlas_800t_a2"))
    content["levels"][1]["latency_s"] |= {"value": 3e-3, "range": [1e-6, 1e-3]}
    said = "levels[1].latency_s is 0.003, outside its range 1e-06 to 0.001"
    assert outside_ranges(from_content(content, "mine.yaml")) == f"{said}: correct the value or the range"
    content["levels"][1]["efficiency"] |= {"value": 0.5, "range": [0.6, 0.7]}
    assert outside_ranges(from_content(content, "mine.yaml")).endswith(
        "levels[1].efficiency is 0.5, outside its range 0.6 to 0.7 (and 1 more): correct the value or the range"
    )
