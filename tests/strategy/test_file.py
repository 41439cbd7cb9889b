import json
from dataclasses import replace

import pytest
from plans import hand_written, small_graph

from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import Recompute
from ms_symtensor.strategy import file


@pytest.fixture(scope="module")
def stored():
    return hand_written("llama2_7b", 2, 4, sequence=True, level=1, recompute=True, attention="self")


def test_a_saved_plan_comes_back_equal(stored, tmp_path):
    graph, plan = stored
    file.save(plan, tmp_path / "out", graph)
    assert file.load(tmp_path / "out") == plan
    assert file.load(tmp_path / "out" / "plan.json") == plan
    assert file.load_graph(tmp_path / "out") == graph
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "digests.json", "graph.json", "plan.json", "timing.json",
    ]  # fmt: skip


def test_the_plan_file_does_not_depend_on_how_long_the_search_took(stored, tmp_path):
    _, plan = stored
    slower = replace(plan, search=replace(plan.search, search_time_s=99.0))
    file.save(plan, tmp_path / "a")
    file.save(slower, tmp_path / "b")
    assert (tmp_path / "a" / "plan.json").read_bytes() == (tmp_path / "b" / "plan.json").read_bytes()
    assert file.load(tmp_path / "b").search.search_time_s == 99.0
    assert (tmp_path / "a" / "digests.json").read_bytes() == (tmp_path / "b" / "digests.json").read_bytes()
    (tmp_path / "b" / "timing.json").unlink()
    assert file.load(tmp_path / "b", edited=True).search.search_time_s == 0.0


def test_a_plan_of_the_version_before_pipelines_is_read(stored, tmp_path):
    _, plan = stored
    data = json.loads(file.files_of(plan)["plan.json"])
    (stage,) = data.pop("stages")
    del stage["layers"], data["made_with"]
    old = data | stage | {"version": 1, "pipeline_stages": 1}
    (tmp_path / "plan.json").write_text(json.dumps(old))
    assert file.load(tmp_path) == replace(plan, search=replace(plan.search, search_time_s=0.0), made_with={})


def test_an_operator_stands_on_a_line_of_its_own(stored):
    _, plan = stored
    lines = file.files_of(plan)["plan.json"].splitlines()
    name = "Default/layers-CellList/0-TransformerBlock/attention-SelfAttention/output-Linear/MatMul-op0"
    assert f'    "{name}": {{"in": [[2, 4], [1, 4]], "out": [[8, 1]]}},' in lines


def test_arguments_in_another_order_are_named(stored, tmp_path):
    graph, plan = stored
    with pytest.raises(
        InputError, match=r"save_plan takes \(plan, directory, graph\), and was given \(Graph, PosixPath, Plan\)"
    ):
        file.save(graph, tmp_path, plan)


def test_saving_leaves_the_old_files_where_the_directory_cannot_be_written(stored, tmp_path):
    _, plan = stored
    (tmp_path / "occupied").write_text("a file")
    with pytest.raises(InputError, match="cannot write to .*occupied.*choose another directory"):
        file.save(plan, tmp_path / "occupied")


def damaged(stored, tmp_path, change):
    _, plan = stored
    data = json.loads(file.files_of(plan)["plan.json"])
    change(data)
    (tmp_path / "plan.json").write_text(json.dumps(data))
    return tmp_path / "plan.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), 'not a plan of ms_symtensor.*"symtensor-plan".*plan again'),
        (lambda d: d.update(version=7), "version 7, this ms_symtensor reads 6: upgrade"),
        (lambda d: d.update(version="1"), "version '1'.*plan again"),
        (lambda d: d["stages"][0].pop("settings"), "'stages.0. > settings' is missing: plan again"),
        (lambda d: d["stages"][0]["settings"].update(device_num="8"), "settings > device_num must be a whole number from 1 up"),
        (lambda d: d["stages"][0]["settings"].update(optimizer_level=4), "optimizer_level must be a whole number from 0 to 3"),
        (lambda d: d["stages"][0]["settings"].update(enable_alltoall=1), "enable_alltoall must be true or false"),
        (lambda d: d["prediction"]["time_s"].update(compute=-1.0), "time_s > compute must be a number from 0 up"),
        (lambda d: d["prediction"]["time_s"].update(compute=float("nan")), "time_s > compute must be a number"),
        (lambda d: d["prediction"]["time_s"].update(compute=10**400), "time_s > compute must be a number from 0 up, not 10"),
        (lambda d: d["prediction"].update(time_s={}), "prediction > time_s must hold the seconds of a step, above 0: plan again"),
        (lambda d: d["prediction"].update(limit_B=10**400), "limit_B must be a whole number from 0 to 92233720368547"),
        (lambda d: d["stages"][0].update(strategies=[]), "strategies must be an object"),
        (lambda d: d["stages"][0]["strategies"].update(x={"in": [2]}), "strategies > x > in must be a list of lists"),
        (lambda d: d["stages"][0]["strategies"].update(x={"in": [[0]]}), "strategies > x > in must be positive whole numbers"),
        (lambda d: d["stages"][0]["strategies"].update(x={"in": [[1]], "out": "y"}), "x > out must be a list of lists"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_plan_is_named_with_its_key(stored, tmp_path, change, message):
    path = damaged(stored, tmp_path, change)
    with pytest.raises(InputError, match=message) as caught:
        file.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format": "symtensor-plan", "ver', "truncated or not JSON"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"[" + b"9" * 6000 + b"]", "is not the plan .a number in it is too long.: plan again"),
        (b"[]", "not a plan"),
    ],
)
def test_a_truncated_or_foreign_file_is_refused(tmp_path, content, message):
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        file.load(tmp_path)


def test_a_missing_plan_is_named(tmp_path):
    with pytest.raises(InputError, match="cannot read the plan .*plan.json.*check the path"):
        file.load(tmp_path)


def test_a_plan_fits_its_own_graph(stored):
    graph, plan = stored
    file.check(plan, graph)


def test_a_plan_for_another_network_names_the_first_difference(stored):
    graph, plan = stored
    wider = small_graph("llama2_7b", attention="self", hidden_size=512)
    with pytest.raises(InputError, match=f"{plan.graph_hash[:12]}.*{wider.hash[:12]}.*gave float32.*gives float32"):
        file.check(plan, wider, graph)
    with pytest.raises(InputError, match="same names, but other shapes"):
        file.check(plan, wider)
    deeper = small_graph("llama2_7b", attention="self", num_layers=3)
    with pytest.raises(InputError, match="network's operator Default/layers-CellList/2-"):
        file.check(plan, deeper)
    other = small_graph("gpt2_xl", attention="self")
    with pytest.raises(InputError, match="plan's operator .*RmsNorm-op0 is not in the network"):
        file.check(plan, other)


def test_a_selection_inside_blocks_comes_back_equal(stored, tmp_path):
    _, plan = stored
    chosen = Recompute(True, ("attention.query.matmul",), ("attention.output.matmul",))
    settings = replace(plan.stage.settings, recompute={"layers.0": Recompute(), "layers.1": chosen})
    selected = replace(plan, stages=(replace(plan.stage, settings=settings),))
    file.save(selected, tmp_path)
    assert file.load(tmp_path).settings == settings
    versions = [json.loads(file.files_of(p)["plan.json"])["version"] for p in (plan, selected)]
    assert versions == [2, 3]  # a plan without selections is read by those who know none


def test_operators_that_are_recomputed_alone_come_back(stored):
    _, plan = stored
    settings = replace(plan.stage.settings, recompute={"layers.1": Recompute(only=("feed_forward.silu",))})
    alone = replace(plan, stages=(replace(plan.stage, settings=settings),))
    data = file.to_json(alone)
    assert data["version"] == 5  # who does not know of it would recompute the block as a whole
    assert file.from_json(data).settings == settings
    data["stages"][0]["settings"]["recompute"]["layers.1"]["kept"] = ["attention.query.matmul"]
    with pytest.raises(InputError, match="recompute > layers.1 has only, and what is kept beside it: plan again"):
        file.from_json(data)


def test_an_own_cluster_comes_back(stored):
    _, plan = stored
    known = load_cluster("atlas_800t_a2")
    own = replace(known, device=replace(known.device, cube_peak_FLOPs=300e12))
    mine = replace(plan, own_cluster=own)
    data = json.loads(json.dumps(file.to_json(mine)))
    assert data["version"] == 6  # who does not know of it would take the known cluster of that name
    assert file.from_json(data).planned_for == own
    assert plan.planned_for == known and "cluster_file" not in file.to_json(plan)
    del data["cluster_file"]["device"]["l2_B"]
    with pytest.raises(InputError, match="device: entry 'l2_B' is missing"):
        file.from_json(data)


def test_swapped_optimizer_states_come_back(stored):
    _, plan = stored
    (stage,) = plan.stages
    stage = replace(stage, settings=replace(stage.settings, swap_optimizer=True))
    swapped = replace(plan, stages=(stage,), prediction=replace(plan.prediction, host_memory_B=1 << 30))
    data = file.to_json(swapped)
    assert data["version"] == 4  # who does not know of the host must not read it as a plan without
    assert file.from_json(data, search_time_s=plan.search.search_time_s) == swapped
