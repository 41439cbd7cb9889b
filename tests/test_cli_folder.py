"""The command line on folders that were changed, and on files of somebody else."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from ms_symtensor.cli import main

needs_mindspore = pytest.mark.skipif(not importlib.util.find_spec("mindspore"), reason="needs MindSpore")
SMALL = ["--num-layers", "2", "--global-batch-size", "8", "--seq-length", "512", "--device-num", "8"]
NETWORK = Path(__file__).parent / "bridge" / "hand_written.py"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plans") / "mine"
    assert main(["plan", "llama2_7b", *SMALL, "--out", str(directory)]) == 0
    return directory


@pytest.fixture
def mine(planned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(planned, tmp_path / "mine"))


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a failing command prints."""
    assert main([str(a) for a in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("symtensor: error: ") and len(line) < 450
    return line


@pytest.mark.parametrize("command", ["explain", "verify", "prove"])
def test_commands_name_the_file_that_differs(command: str, mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mine / "parameter_layout.ckpt").write_bytes((mine / "parameter_layout.ckpt").read_bytes()[:50])
    (mine / "shard.py").unlink()
    said = failure(capsys, command, mine)
    assert "parameter_layout.ckpt has 50 of " in said and "shard.py is missing" in said and "--edited" in said


def test_an_edited_folder_is_told_and_gone_on_with(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open(mine / "report.txt", "a") as report:
        report.write("and what I think of it\n")
    assert main(["explain", str(mine), "--edited"]) == 0
    assert capsys.readouterr().err == "symtensor: as it is, --edited: report.txt differs\n"


@needs_mindspore
def test_verify_certifies_the_files_that_mindspore_reads(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strategies = json.loads((mine / "operator_strategy.json").read_text())
    name = next(n for n in strategies["parallel_strategy_item"] if n.endswith("query-Linear/MatMul-op0"))
    strategies["parallel_strategy_item"][name]["parallel_strategy"] = [[1, 1], [1, 1]]
    (mine / "operator_strategy.json").write_text(json.dumps(strategies))
    assert main(["verify", str(mine), "--edited", "--blocks", "1", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["accepted"] and data["collectives"]["equal"]
    assert data["files"] == {
        "certified": ["parameter_layout.json", "parameter_layout.ckpt"],
        "differ": {"operator_strategy.json": "differs from the plan"},
        "absent": [],
    }


@needs_mindspore
def test_a_factory_of_somebody_else_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same folder, as the user who made it has it, and as another one has it."""
    out = tmp_path / "plan"
    assert main(["plan", f"{NETWORK}:unsharded", "--device-num", "8", "--out", str(out)]) == 0
    made_with = json.loads((out / "plan.json").read_text())["made_with"]
    assert set(made_with) == {"mindspore", "ms_symtensor"}
    capsys.readouterr()
    assert main(["verify", str(out)]) == 0
    assert capsys.readouterr().err == f"symtensor: running {NETWORK}:unsharded, which the plan names\n"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    for command in (("verify",), ("prove",), ("explain", "--why-not", "dp=2")):
        said = failure(capsys, command[0], out, *command[1:])
        assert f"the plan runs {NETWORK}:unsharded" in said and "--trust" in said
    assert main(["verify", str(out), "--trust"]) == 0
    from ms_symtensor.bridge.judge.verify import verify
    from ms_symtensor.bridge.plugin.planning import load_plan
    from ms_symtensor.errors import InputError

    stored = load_plan(out)
    with pytest.raises(InputError, match="the plan runs"):
        verify(stored, stored.graph)
    assert verify(load_plan(out, trust=True), stored.graph).passed


def test_a_plan_whose_model_is_a_file_is_refused(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    data = json.loads((mine / "plan.json").read_text())
    data["source"]["model"] = f"{tmp_path}/evil.py:factory"
    (mine / "plan.json").write_text(json.dumps(data))
    for command in (("verify",), ("prove",), ("explain", "--why-not", "dp=4")):
        assert main([command[0], str(mine), "--edited", *command[1:]]) == 2
    assert not (tmp_path / "run").exists()
    assert "Traceback" not in capsys.readouterr().err


def test_a_state_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert main(["plan", "llama2_7b", *SMALL, "--out", str(tmp_path / "plan")]) == 0
    (line,) = (one for one in capsys.readouterr().err.splitlines() if one.startswith("symtensor"))
    assert "not noted as your own plan" in line and "Not a directory" in line


def test_names_with_code_in_graph_and_cluster_are_not_run(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f'"""\nopen({str(tmp_path / "run")!r}, "w")\n"""'
    graph = json.loads((planned / "graph.json").read_text())
    graph["name"] = code
    for op in graph["ops"]:
        if op.get("primitive"):
            op["primitive"] += f"\nopen({str(tmp_path / 'run')!r}, 'w')\n#"
    graph_file = tmp_path / f"{code.replace('/', '')}.json"
    graph_file.write_text(json.dumps(graph))
    (tmp_path / "mine.yaml").write_text(f"based_on: atlas_800t_a2\nname: {json.dumps(code)}\n")
    out = tmp_path / "plan"
    asked = ["plan", str(graph_file), "--device-num", "8", "--cluster", str(tmp_path / "mine.yaml"), "--out", str(out)]
    assert main(asked) == 0
    spec = importlib.util.spec_from_file_location("shard_of_somebody", out / "shard.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert main(["explain", str(out)]) == 0
    assert not (tmp_path / "run").exists()


def test_a_cluster_file_of_nested_aliases_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = "".join(f" - &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    (tmp_path / "c.yaml").write_text(f"based_on: atlas_800t_a2\ndescription:\n - &a0 [x,x,x,x,x,x,x,x,x,x]\n{levels}")
    asked = ["plan", "llama2_7b", *SMALL, "--cluster", tmp_path / "c.yaml", "--out", tmp_path / "plan"]
    assert "says more than 10,000 values" in failure(capsys, *asked)


def test_a_leftover_of_a_killed_writer_goes_with_the_next_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever becomes of that one."""
    (tmp_path / ".plan.symtensor-0123abcd").mkdir()
    (tmp_path / ".plan.symtensor-0123abcd" / "plan.json").write_text("{")
    (tmp_path / ".other.yaml.symtensor-0123abcd").write_text("")
    assert "unknown model" in failure(capsys, "plan", "nothing", "--device-num", "8", "--out", tmp_path / "plan")
    assert list(tmp_path.iterdir()) == []
