"""Whose code runs: that of plans which this user's own `plan` made, and no other."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from plans import hand_written

from ms_symtensor.errors import InputError
from ms_symtensor.report.emit import write_plan
from ms_symtensor.report.programs import programs_of
from ms_symtensor.strategy import trust
from ms_symtensor.strategy.file import load, save


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SYMTENSOR_TRUST", raising=False)
    return tmp_path / "state" / "symtensor" / "planned"


@pytest.fixture
def made(tmp_path):
    """A folder whose plan names a factory, and the digest of the folder."""
    graph, plan = hand_written("llama2_7b", 2, 4)
    plan = replace(plan, source={"factory": "/somewhere/net.py:factory"})
    return tmp_path / "mine", write_plan(plan, graph, programs_of(plan, graph), "a report", tmp_path / "mine").digest


def test_a_plan_is_trusted_where_its_folder_was_noted(made, tmp_path):
    place, digest = made
    assert not load(place).trusted
    trust.remember(digest)
    assert load(place).trusted
    place.rename(tmp_path / "moved")
    assert load(tmp_path / "moved").trusted


def test_a_changed_plan_is_not_trusted_though_its_list_of_digests_is(made):
    place, digest = made
    trust.remember(digest)
    data = json.loads((place / "plan.json").read_text())
    data["source"]["factory"] = "/elsewhere/other.py:factory"
    (place / "plan.json").write_text(json.dumps(data))
    assert not load(place, edited=True).trusted
    (place / "copy.json").write_text(json.dumps(data))
    assert not load(place / "copy.json", edited=True).trusted


def test_a_foreign_plan_is_not_trusted_for_being_saved_again(made, tmp_path):
    place, _ = made
    save(load(place), tmp_path / "copy")
    assert not load(tmp_path / "copy").trusted


def test_the_user_may_say_so(made, monkeypatch):
    place, _ = made
    assert load(place, trust=True).trusted
    monkeypatch.setenv("SYMTENSOR_TRUST", "1")
    assert load(place).trusted
    monkeypatch.setenv("SYMTENSOR_TRUST", "yes")
    with pytest.raises(InputError, match="SYMTENSOR_TRUST is 'yes': give 1, or 0"):
        load(place)


def test_a_plan_without_a_factory_runs_no_code(tmp_path):
    _, plan = hand_written("llama2_7b", 2, 4)
    save(plan, tmp_path / "zoo")
    assert load(tmp_path / "zoo").trusted


def test_what_is_noted_is_bounded(state):
    digests = [f"{number:064x}" for number in range(trust.MOST + 2)]
    state.parent.mkdir(parents=True)
    state.write_text("\n".join(digests[:-1]) + "\n")
    trust.remember(digests[-1])
    trust.remember(digests[5])
    noted = state.read_text().splitlines()
    assert len(noted) == trust.MOST and noted[-2:] == [digests[-1], digests[5]] and noted.count(digests[5]) == 1


def test_several_processes_note_their_plans_at_once(state):
    script = "import sys; from ms_symtensor.strategy.trust import remember; [remember(f'{sys.argv[1]}-{n}') for n in range(25)]"

    def noting(name):
        subprocess.run([sys.executable, "-c", script, name], check=True, cwd=Path(__file__).parents[2])

    with ThreadPoolExecutor() as pool:
        list(pool.map(noting, ("a", "b", "c")))
    assert sorted(state.read_text().split()) == sorted(f"{name}-{n}" for name in "abc" for n in range(25))
    assert [one.name for one in state.parent.iterdir()] == ["planned"]


def test_a_state_folder_that_cannot_be_written_or_read_is_told(made, tmp_path, monkeypatch):
    place, digest = made
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match="cannot write to .*Not a directory"):
        trust.remember(digest)
    assert not load(place).trusted


def test_a_state_folder_that_is_no_full_path_is_passed_over(made, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    trust.remember(made[1])
    assert (tmp_path / "home/.local/state/symtensor/planned").read_text() == made[1] + "\n"
    assert load(made[0]).trusted
