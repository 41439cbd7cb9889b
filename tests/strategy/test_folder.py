"""A plan's folder, as it was written and as it is found."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from plans import hand_written

from ms_symtensor.errors import InputError
from ms_symtensor.report.emit import write_plan
from ms_symtensor.report.programs import programs_of
from ms_symtensor.strategy import digest, file, folder

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kill_while_writing.py"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    graph, plan = hand_written("llama2_7b", 2, 4)
    place = tmp_path_factory.mktemp("plans") / "mine"
    write_plan(plan, graph, programs_of(plan, graph), "a report\n" * 20, place)
    return place


@pytest.fixture
def mine(written, tmp_path):
    """A copy of the folder."""
    return Path(shutil.copytree(written, tmp_path / "mine"))


NAMES = (
    "digests.json", "graph.json", "operator_strategy.json", "parameter_layout.ckpt", "parameter_layout.json",
    "plan.json", "report.txt", "shard.py", "timing.json",
)  # fmt: skip


def test_every_file_has_a_digest(written):
    assert sorted(one.name for one in written.iterdir()) == sorted(NAMES)
    data = json.loads((written / "digests.json").read_text())
    assert set(data["files"]) == {*NAMES} - {"digests.json"}
    assert data["files"]["shard.py"]["sha256"] == digest.of_content((written / "shard.py").read_bytes())
    assert folder.read(written).digest == digest.of_content((written / "digests.json").read_bytes())


def cut(path):
    path.write_bytes(path.read_bytes()[:50])


def changed(path):
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])


def longer(path):
    path.write_bytes(path.read_bytes() + b"\n")


def twisted(path):
    """Another file in its place."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", [cut, changed, longer, Path.unlink, twisted])
def test_a_file_that_is_not_as_it_was_written_is_named(mine, name, damage):
    damage(mine / name)
    for load in (file.load, file.load_graph):
        with pytest.raises(InputError, match=f"mine: {name} .*--edited") as caught:
            if load is file.load_graph and name == "digests.json" and not (mine / name).is_file():
                file.load(mine)  # a graph alone does not know that it had digests
            load(mine)
        assert "\n" not in str(caught.value)
    if name not in ("plan.json", "timing.json"):
        assert file.load(mine, edited=True).model == "RotaryDecoder"


def test_all_files_that_differ_are_named(mine):
    for name in NAMES[1:6]:
        cut(mine / name)
    with pytest.raises(InputError, match="graph.json has 50 of .*parameter_layout.json") as caught:
        file.load(mine)
    assert len(str(caught.value)) < 450


def test_an_edited_strategy_is_noticed_and_read_if_asked(mine):
    plan = json.loads((mine / "plan.json").read_text())
    name, strategy = next(iter(plan["stages"][0]["strategies"].items()))
    plan["stages"][0]["strategies"][name] = {"in": [[1] * len(degrees) for degrees in strategy["in"]]}
    (mine / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match="plan.json"):
        file.load(mine / "plan.json")
    assert all(n == 1 for degrees in file.load(mine, edited=True).strategies[name].inputs for n in degrees)


@pytest.mark.parametrize("line", ["shard.py", "plan.json"])
def test_a_file_that_is_taken_off_the_list_is_noticed(mine, line):
    text = (mine / "digests.json").read_text().splitlines(keepends=True)
    (mine / "digests.json").write_text("".join(one for one in text if line not in one))
    with pytest.raises(InputError, match="digests.json is cut or was changed"):
        file.load(mine)
    data = json.loads("".join(text))
    del data["files"]["plan.json"], data["sha256"]
    (mine / "digests.json").write_text(digest.sealed(data))
    with pytest.raises(InputError, match="plan.json is not in digests.json"):
        file.load(mine)


def test_folders_without_digests_are_read(mine):
    """As they were written by versions without digests, which do not say what they were made with."""
    (mine / "digests.json").unlink()
    (mine / "timing.json").write_text('{"search_time_s": 2.5}')
    with pytest.raises(InputError, match="digests.json is missing"):
        file.load(mine)
    plan = json.loads((mine / "plan.json").read_text())
    del plan["made_with"]
    (mine / "plan.json").write_text(json.dumps(plan))
    assert file.load(mine).search.search_time_s == 2.5
    assert file.load_graph(mine) is not None


def test_a_newer_list_asks_for_an_upgrade(mine):
    data = json.loads((mine / "digests.json").read_text())
    del data["sha256"]
    (mine / "digests.json").write_text(digest.sealed({**data, "version": 2}))
    with pytest.raises(InputError, match="version"):
        file.load(mine)


def test_a_plan_takes_the_place_of_another_and_notes_stay(mine):
    graph, plan = hand_written("llama2_7b", 4, 2)
    (mine / "notes.txt").write_text("mine")
    (mine / "parameter_layout_7.json").write_text("of nobody's plan")
    file.save(plan, mine, graph)
    assert sorted(one.name for one in mine.iterdir()) == [
        "digests.json", "graph.json", "notes.txt", "parameter_layout_7.json", "plan.json", "timing.json",
    ]  # fmt: skip
    assert file.load(mine) == plan
    for name in ("digests.json", "timing.json"):
        (mine / name).unlink()
    old = json.loads((mine / "plan.json").read_text())
    del old["made_with"]
    (mine / "plan.json").write_text(json.dumps(old))
    file.save(plan, mine)  # over a plan without digests: its files are known by their names
    assert sorted(one.name for one in mine.iterdir()) == ["digests.json", "notes.txt", "plan.json", "timing.json"]


def test_what_lies_where_no_plan_is_stays(tmp_path):
    _, plan = hand_written("llama2_7b", 2, 4)
    for name in ("shard.py", "report.txt"):
        (tmp_path / name).write_text("mine")
    file.save(plan, tmp_path)
    assert (tmp_path / "shard.py").read_text() == (tmp_path / "report.txt").read_text() == "mine"


def test_the_versions_come_back(tmp_path):
    graph, plan = hand_written("llama2_7b", 2, 4)
    assert set(plan.made_with) == {"ms_symtensor"}
    captured = replace(plan, made_with={**plan.made_with, "mindspore": "2.10.0"})
    file.save(captured, tmp_path, graph)
    assert file.load(tmp_path) == captured
    assert json.loads((tmp_path / "plan.json").read_text())["made_with"] == captured.made_with


def test_a_writer_that_is_killed_leaves_one_plan_or_the_other():
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "10"], capture_output=True, text=True, cwd=BENCHMARK.parents[1]
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_mixture_in_the_folder_in_which_one_works_is_refused(tmp_path):
    """Where files change one by one, a killed writer may leave one; it is never taken for a plan."""
    script = [sys.executable, str(Path(__file__).with_name("killed_in_place.py")), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARK.parents[1])}
    done = subprocess.run(script, check=True, capture_output=True, env=environment)
    for found in json.loads(done.stdout):
        assert set(found) == {"old", "new", "a mixture, refused"}
