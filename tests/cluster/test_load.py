import copy
import re

import pytest
import yaml

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.content import to_content
from ms_symtensor.cluster.load import _FOLDER, content_of, from_content, known_clusters, load
from ms_symtensor.cluster.topology import LevelKind
from ms_symtensor.errors import InputError

A2 = yaml.safe_load((_FOLDER / "atlas_800t_a2.yaml").read_text())


def write(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def test_known_clusters_load():
    assert set(known_clusters()) >= {
        "a100_80g", "ascend910a", "atlas_800t_a2", "atlas_800t_a2_910b1", "atlas_800t_a2_910b3", "atlas_800t_a2_910b4",
        "atlas_800t_a2_910b4_64", "atlas_800t_a3", "b200", "cloudmatrix384", "h100_80g",
    }  # fmt: skip
    for name in known_clusters():
        cluster = load(name)
        assert cluster.name == name
        assert load(name) is cluster
        assert cluster.device.hbm_usable_B < cluster.device.hbm_capacity_B


@pytest.mark.parametrize("name", known_clusters())
def test_every_number_has_a_source_and_lies_in_its_range(name):
    content = content_of(_FOLDER / f"{name}.yaml")
    sources = dict(load(name).sources)
    numbers = 0
    for place, entry in [
        *((f"device.{key}", value) for key, value in content["device"].items() if key != "name"),
        *((f"collectives.{key}", value) for key, value in content["collectives"].items()),
        *((f"host.{key}", value) for key, value in content.get("host", {}).items()),
        *(
            (f"levels[{index}].{key}", value)
            for index, level in enumerate(content["levels"])
            for key, value in level.items()
            if key not in ("name", "kind")
        ),
    ]:
        source = sources[place]
        assert len(source.text) > 20, place
        assert re.search(r"\.(com|net|ini|cc|h|pdf)|arXiv|HCCL|Gbit/s|PCIe|empirical", source.text), place
        if source.low is not None and source.high is not None:
            assert source.low <= float(entry["value"]) <= source.high, place
        numbers += 1
    assert numbers == len(sources)


def test_a_file_that_is_based_on_a_known_cluster(tmp_path):
    ini = {"value": 300e12, "source": "measured here"}
    cluster = load(write(tmp_path, {"based_on": "atlas_800t_a2", "name": "mine", "device": {"cube_peak_FLOPs": ini}}))
    base = load("atlas_800t_a2")
    assert cluster.name == "mine" and cluster.device.cube_peak_FLOPs == 300e12
    assert cluster.levels == base.levels and cluster.device.l2_B == base.device.l2_B
    assert dict(cluster.sources)["device.cube_peak_FLOPs"].text == "measured here"
    with pytest.raises(InputError, match="based_on: expected one of a100_80g, .* found 'atlas'"):
        load(write(tmp_path, {"based_on": "atlas"}))


def test_the_variants_of_the_910b_differ_in_their_device_alone():
    clusters = [load(name) for name in known_clusters() if name.startswith("atlas_800t_a2")]
    devices = {cluster.device for cluster in clusters}
    assert len(devices) == len(clusters) == 5 and len({cluster.levels for cluster in clusters}) == 1
    assert len({device.cube_peak_FLOPs for device in devices}) == 4  # the 910B4 comes with two sizes of memory
    assert {(device.hbm_capacity_B, device.hbm_bandwidth_Bps) for device in devices} == {
        (64 << 30, 1.76e12), (32 << 30, 0.88e12),
    }  # fmt: skip


def test_a_warning_stands_in_the_file(tmp_path):
    cluster = load("ascend910a")
    assert "off by 54 to 94 %" in cluster.warning and not load("atlas_800t_a2").warning
    assert from_content(to_content(cluster), "back").warning == cluster.warning
    with pytest.raises(InputError, match="warning: expected a text, found 3"):
        load(write(tmp_path, {**A2, "warning": 3}))


def test_a_users_file(tmp_path):
    cluster = load(write(tmp_path, A2))
    assert cluster == load("atlas_800t_a2") and hash(cluster) == hash(load("atlas_800t_a2"))
    mine = copy.deepcopy(A2)
    mine["levels"][0]["bandwidth_Bps"] = {"value": "56e9", "source": "measured here", "range": [50e9, 60e9]}
    mine["levels"][0]["kind"] = "ring"
    cluster = load(write(tmp_path, mine))
    assert cluster.levels[0].bandwidth_Bps == 56e9 and cluster.levels[0].kind is LevelKind.RING
    assert dict(cluster.sources)["levels[0].bandwidth_Bps"].high == 60e9
    assert collective_time_s(cluster, "AllGather", tuple(range(8)), 8e6) > 0


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"unknown cluster 'atlas'; known: a100_80g, ascend910a, .*cloudmatrix384"):
        load("atlas")


def test_an_entry_that_a_file_may_leave_out(tmp_path):
    assert load("atlas_800t_a2").device.attention_head_dim == 128
    assert load(write(tmp_path, changed(["device", "attention_head_dim"], ...))).device.attention_head_dim == 0


def test_a_misspelt_entry_is_named_and_not_the_one_that_it_replaced(tmp_path):
    content = copy.deepcopy(A2)
    content["device"]["hbm_useable_B"] = content["device"].pop("hbm_usable_B")
    with pytest.raises(InputError, match="device: unknown entry 'hbm_useable_B'; expected hbm_usable_B"):
        load(write(tmp_path, content))


def changed(path, value):
    """A2's file with the entry at `path` set to `value`, or removed if `value` is Ellipsis."""
    content = copy.deepcopy(A2)
    target = content
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return content


@pytest.mark.parametrize(
    "path, value, message",
    [
        (["device"], ..., "the file: entry 'device' is missing"),
        (["device", "l2_B"], ..., "device: entry 'l2_B' is missing; expected {value: a number of bytes, above 0; sou"),
        (["device", "l3_B"], {}, "device: unknown entry 'l3_B'; expected l2_B"),
        (["device", "l2_B"], 5, "device.l2_B: expected {value: …, source: …}"),
        (["device", "l2_B"], {"value": 5}, "device.l2_B: expected {value: …, source: …}"),
        (["device", "l2_B", "value"], "big", "device.l2_B.value: expected a number, found 'big'"),
        (["device", "l2_B", "value"], 10**400, "device.l2_B.value: expected a number, found 1000"),
        (["device", "l2_B", "range"], [1, 10**400], "device.l2_B.range: expected a number, found 1000"),
        (
            ["levels", 0, "ranks", "value"],
            10**400,
            "ranks.value: expected a whole number above 1, or null for an unbounded",
        ),
        (["device", "l2_B", "value"], True, "device.l2_B.value: expected a number, found True"),
        (["device", "l2_B", "value"], float("nan"), "device.l2_B.value: expected a number"),
        (["device", "l2_B", "source"], " ", "device.l2_B.source: expected a text"),
        (["device", "l2_B", "range"], [1], "device.l2_B.range: expected [low, high]"),
        (["device", "hbm_bandwidth_Bps", "value"], 0, "expected {value: a number of bytes per second, above 0;"),
        (["device", "hbm_usable_B", "value"], 1e12, "device.hbm_usable_B: expected at most device.hbm_capacity_B"),
        (["levels"], [], "levels: expected a list of at least one level"),
        (["levels", 0, "kind"], "star", "levels[0].kind: expected one of mesh, switch, ring, found 'star'"),
        (["levels", 0, "efficiency", "value"], 65, "levels[0].efficiency.value: expected a fraction between 0 and 1"),
        (["levels", 0, "latency_s", "value"], -1, "levels[0].latency_s.value: expected {value: a number of seconds, 0"),
        (["levels", 0, "ranks", "value"], None, "levels[0].ranks: expected a number; only the outermost"),
        (["levels", 0, "ranks", "value"], 2.5, "levels[0].ranks.value: expected a whole number above 1"),
        (["levels", 1, "ranks", "value"], 12, "levels[1].ranks: expected a multiple of the 8 ranks"),
        (["levels", 1, "name"], "node", "levels[1].name: expected a name of letters"),
        (["levels", 1, "name"], "hbm", "levels[1].name: choose another name, symbol 'B_hbm' already means"),
        (["collectives", "gather_order", "value"], "any", "collectives.gather_order: expected one of intra_first,"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, path, value, message):
    file = write(tmp_path, changed(path, value))
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load(file)
    assert file in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: [", "not valid YAML"),
        ("a: \0", "not valid YAML"),
        ("5", "expected the entries name, "),
        ("a: " + "9" * 6000, "a number, date or tag in it cannot be read"),
    ],
)
def test_damaged_files(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load(write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load(str(tmp_path / "none.yaml"))


def test_a_file_may_say_nothing_of_the_host(tmp_path):
    assert load("atlas_800t_a2").host.bandwidth_Bps == 20e9
    assert load("atlas_800t_a2").host.memory_B is None
    silent = {key: value for key, value in A2.items() if key != "host"}
    assert load(write(tmp_path, silent)).host is None
    half = {**A2, "host": {"bandwidth_Bps": A2["host"]["bandwidth_Bps"]}}
    with pytest.raises(InputError, match="host: entry 'memory_B' is missing"):
        load(write(tmp_path, half))


def test_what_is_no_name_is_told():
    for given in (None, 3):
        with pytest.raises(InputError, match=f"cluster is {given}: give a name .*or the path of a file"):
            load(given)
