"""The files that MindSpore reads, beside what the plan gives."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "strategy"))
from plans import hand_written

from ms_symtensor.report.certificate import certificate_json, certify, with_certificate
from ms_symtensor.report.emit import write_plan
from ms_symtensor.report.programs import programs_of
from ms_symtensor.strategy.file import graph_in, plan_in, save
from ms_symtensor.strategy.folder import read

FILES = ("operator_strategy.json", "parameter_layout.json", "parameter_layout.ckpt")


@pytest.fixture
def mine(tmp_path):
    graph, plan = hand_written("llama2_7b", 2, 4)
    write_plan(plan, graph, programs_of(plan, graph), "a report", tmp_path)
    return tmp_path


def certified(place):
    folder = read(place, edited=True)
    return certify(folder, plan_in(folder), graph_in(folder))


def test_what_was_written_agrees(mine):
    found = certified(mine)
    assert found.holds and found.agree == FILES and not found.absent
    assert certificate_json(found) == {"files": {"certified": list(FILES), "differ": {}, "absent": []}}
    text = with_certificate("head\n  verified", found)
    assert text.splitlines() == ["head", f"  as the plan says: {', '.join(FILES)}", "  verified"]


def test_json_is_compared_as_data(mine):
    for name in FILES[:2]:
        (mine / name).write_text(json.dumps(json.loads((mine / name).read_text()), indent=3, sort_keys=True))
    assert certified(mine).agree == FILES


def test_files_that_say_something_else_are_named(mine):
    strategies = json.loads((mine / FILES[0]).read_text())
    next(iter(strategies["parallel_strategy_item"].values()))["parallel_strategy"][0][0] = 8
    (mine / FILES[0]).write_text(json.dumps(strategies))
    (mine / FILES[1]).write_bytes((mine / FILES[1]).read_bytes()[:50])
    (mine / FILES[2]).write_bytes((mine / FILES[2]).read_bytes()[:-1])
    (mine / "parameter_layout_3.ckpt").write_bytes(b"")
    found = certified(mine)
    assert not found.holds and not found.agree
    assert found.differ == {
        **dict.fromkeys(FILES, "differs from the plan"), "parameter_layout_3.ckpt": "is not of this plan",
    }  # fmt: skip
    text = with_certificate("head\n  verified", found)
    assert "  NOT certified: operator_strategy.json differs from the plan\n" in text
    assert text.endswith("  verified for the plan, NOT for the files that MindSpore reads")


def test_a_strategy_edited_in_the_plan_alone_is_noticed_in_the_files(mine):
    plan = json.loads((mine / "plan.json").read_text())
    plan["stages"][0]["settings"]["optimizer_level"] = 2
    name = next(n for n in plan["stages"][0]["strategies"] if n.endswith("query-Linear/MatMul-op0"))
    plan["stages"][0]["strategies"][name] = {"in": [[8, 1], [1, 1]]}
    (mine / "plan.json").write_text(json.dumps(plan))
    assert set(certified(mine).differ) == set(FILES)


def test_files_that_are_not_there_are_told(mine, tmp_path):
    graph, plan = hand_written("llama2_7b", 2, 4)
    save(plan, tmp_path / "plain", graph)
    found = certified(tmp_path / "plain")
    assert found.holds and found.absent == FILES
    assert f"  not in the folder: {', '.join(FILES)}\n" in with_certificate("head\n  verified", found)
    (mine / "graph.json").unlink()
    assert set(certified(mine).differ.values()) == {"cannot be compared without graph.json"}
