"""The command line as a user sees it: real runs on small networks of the zoo, and every mistake as one line."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ms_symtensor.bridge.apply.load_network import run_file
from ms_symtensor.cli import main
from ms_symtensor.cluster.content import to_content
from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.ops import registry

SMALL = ["--num-layers", "2", "--global-batch-size", "8", "--seq-length", "512"]
PLAN_KEYS = {
    "model", "cluster", "device_num", "data_parallel", "model_parallel", "sequence_parallel", "context_parallel",
    "expert_parallel", "pipeline_stages", "micro_batch_num", "optimizer_weight_shard_size", "recompute", "step_time_s",
    "time_breakdown_s", "peak_memory_B", "memory_breakdown_B", "fits", "optimality_gap", "search_time_s", "candidates",
}  # fmt: skip
VERDICT_KEYS = {
    "accepted", "gradients_synchronised", "collectives", "parameter_bytes", "activation_peak_B", "mindspore", "compile_time_s",
}  # fmt: skip
FILES = {
    "plan.json", "timing.json", "graph.json", "operator_strategy.json", "parameter_layout.json", "parameter_layout.ckpt",
    "shard.py", "report.txt", "digests.json",
}  # fmt: skip
NETWORKS = Path(__file__).parent / "bridge" / "hand_written.py"
needs_mindspore = pytest.mark.skipif(not importlib.util.find_spec("mindspore"), reason="needs MindSpore")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of two layers of Llama-2 7B on 8 devices."""
    directory = tmp_path_factory.mktemp("plan")
    assert main(["plan", "llama2_7b", *SMALL, "--device-num", "8", "--out", str(directory)]) == 0
    return directory


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a failing command prints."""
    assert main([str(a) for a in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("symtensor: error: ")
    return line


def test_plan_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gpt2_xl", *SMALL, "--device-num", "4", "--out", str(tmp_path / "p"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data.keys() >= PLAN_KEYS
    assert data["model"] == "gpt2_xl"
    assert data["device_num"] == 4
    assert data["fits"] is True
    assert data["step_time_s"] == pytest.approx(sum(data["time_breakdown_s"].values()))
    assert data["peak_memory_B"] == sum(data["memory_breakdown_B"].values()) <= data["memory_limit_B"]


def test_plan_warns_of_a_cluster_whose_predictions_are_useless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", "llama2_7b", *SMALL, "--device-num", "4", "--out", str(tmp_path), "--json", "--cluster"]
    assert main([*command, "ascend910a"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["cluster"] == "ascend910a"
    (line,) = [line for line in found.err.splitlines() if "warning" in line]
    assert line.startswith("symtensor: warning: cluster ascend910a: predictions for the Ascend 910A are useless")


def test_plan_writes_all_its_files(planned: Path) -> None:
    others = {"verified.json"}  # of another test, in any order
    assert {f.name for f in planned.iterdir()} - others == FILES
    report = (planned / "report.txt").read_text()
    assert "llama2_7b: 8 devices of atlas_800t_a2" in report
    assert "layers.0 … 1 (2 blocks alike)" in report
    compile((planned / "shard.py").read_text(), "shard.py", "exec")


def test_the_same_request_gives_the_same_plan(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "llama2_7b", *SMALL, "--device-num", "8", "--out", str(tmp_path)]) == 0
    seen = capsys.readouterr().out  # at a glance: report.txt has the operators
    assert "tokens/s" in seen and "RmsNorm" not in seen and len(seen.splitlines()) < 50
    for name in FILES - {"timing.json", "report.txt"}:
        assert (tmp_path / name).read_bytes() == (planned / name).read_bytes(), name


def test_a_plan_takes_the_place_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "h"

    def files_with(stages: int) -> set[str]:
        pins = ["--fix", f"pipeline_stages={stages}", "--out", str(out)]
        pins += ["--fix", "micro_batch_num=1"] if stages == 1 else []
        assert main(["plan", "llama2_7b", *SMALL, "--device-num", "8", *pins]) == 0
        return {one.name for one in out.iterdir()}

    assert files_with(2) == FILES | {f"parameter_layout_{n}.{form}" for n in (0, 1) for form in ("json", "ckpt")}
    (out / "notes.json").write_text("mine")
    assert files_with(1) == FILES | {"notes.json"}
    (out / "shard.py").unlink()
    (out / "shard.py").mkdir()
    capsys.readouterr()
    before = {one.name: one.stat().st_mtime_ns for one in out.iterdir()}
    said = failure(capsys, "plan", "llama2_7b", *SMALL, "--device-num", "8", "--out", out)
    assert f"cannot write {out / 'shard.py'}, which is a directory" in said
    assert {one.name: one.stat().st_mtime_ns for one in out.iterdir()} == before


def test_pins_are_kept_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = [
        "--fix",
        "model_parallel=4",
        "--fix",
        "*.query.matmul=m/2,n/4",
        "--max",
        "recompute=1",
        "--memory-margin",
        "50%",
    ]
    assert main(["plan", "llama2_7b", *SMALL, "--device-num", "8", *pins, "--out", str(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["fixed"] == {"model_parallel": "4", "*.query.matmul": "m/2,n/4"} and data["at_most"] == {
        "recompute": "1"
    }
    assert data["model_parallel"] == 4 and len(data["recompute"]) <= 1
    assert data["peak_memory_B"] <= data["memory_limit_B"] < 30 << 30
    assert (
        "pinned: model_parallel = 4, *.query.matmul = m/2,n/4, recompute <= 1" in (tmp_path / "report.txt").read_text()
    )
    assert main(["explain", str(tmp_path), "--why-not", "sp=no"]) == 0
    assert "sp=no: " in capsys.readouterr().out


OWN_CLUSTER = """
based_on: atlas_800t_a2
name: mine
device:
  cube_peak_FLOPs: {value: 100.0e12, source: measured here}
"""


def test_a_plan_for_a_cluster_of_ones_own(planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file may be gone, or changed, when the plan is looked at again."""
    (tmp_path / "mine.yaml").write_text(OWN_CLUSTER)
    out = str(tmp_path / "plan")
    asked = ["plan", "llama2_7b", *SMALL, "--device-num", "8", "--cluster", str(tmp_path / "mine.yaml"), "--out", out]
    assert main([*asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (tmp_path / "mine.yaml").unlink()
    assert "llama2_7b: 8 devices of mine (own file)" in (tmp_path / "plan" / "report.txt").read_text()
    assert data["cluster"] == "mine"
    assert main(["explain", out]) == 0
    assert f"step time {data['step_time_s']:.3e}"[:15] in capsys.readouterr().out
    assert main(["explain", out, "--why-not", "model_parallel=8"]) == 0
    assert "pin" not in capsys.readouterr().out.splitlines()[0]
    known = json.loads((planned / "plan.json").read_text())["prediction"]["time_s"]["compute"]
    assert data["time_breakdown_s"]["compute"] > 2 * known


def test_a_value_outside_its_own_range_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(OWN_CLUSTER.replace("100.0e12,", "100.0e12, range: [2.0e14, 4.0e14],"))
    asked = ["plan", "gpt2_xl", *SMALL, "--device-num", "2", "--cluster", str(tmp_path / "mine.yaml")]
    assert main([*asked, "--out", str(tmp_path / "plan")]) == 0
    said = "device.cube_peak_FLOPs is 1e+14, outside its range 2e+14 to 4e+14: correct the value or the range"
    assert capsys.readouterr().err == f"symtensor: warning: cluster mine: {said}\n"


def test_one_node_alone_is_planned_like_one_of_many(planned: Path, tmp_path: Path) -> None:
    node = to_content(
        replace(load_cluster("atlas_800t_a2"), name="one", levels=load_cluster("atlas_800t_a2").levels[:1])
    )
    (tmp_path / "one.yaml").write_text(json.dumps(node))
    asked = ["plan", "llama2_7b", *SMALL, "--device-num", "8", "--cluster", str(tmp_path / "one.yaml")]
    assert main([*asked, "--out", str(tmp_path / "plan")]) == 0
    alone, among = (json.loads((at / "plan.json").read_text()) for at in (tmp_path / "plan", planned))
    assert {name for name in alone if alone[name] != among.get(name)} == {"version", "cluster", "cluster_file"}


def test_a_saved_graph_is_planned_like_its_model(planned: Path, tmp_path: Path) -> None:
    arguments = ["plan", str(planned / "graph.json"), "--device-num", "8", "--out", str(tmp_path)]
    assert main(arguments) == 0
    ours, theirs = (json.loads((d / "plan.json").read_text()) for d in (tmp_path, planned))
    assert ours["stages"] == theirs["stages"]


def test_explain_prints_formulas(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(planned), "--operator", "query.matmul"]) == 0
    text = capsys.readouterr().out
    assert "m k, n k -> m n" in text
    assert "forward [FLOP] = 2.0·N_k·N_m·N_n/(c_k·c_m·c_n)" in text
    assert "N_k" in text.partition("where")[2]
    assert main(["explain", str(planned), "--operator", "MatMul", "--latex"]) == 0
    assert r"\[ T_\mathrm{compute} = " in capsys.readouterr().out
    assert main(["explain", str(planned)]) == 0
    assert "RmsNorm" in capsys.readouterr().out


def test_explain_begins_with_the_costliest_operators(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(planned)]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 40 and "t_op" not in text
    rows = text.partition("Costliest operators")[2].splitlines()[2:18]
    assert rows[-1].split()[:2] == ["all", "others"]
    assert sum(int(row.split()[-2]) for row in rows) in range(92, 109)  # whole percents
    dearest = rows[0].split()
    assert main(["explain", str(planned), "--operator", dearest[0]]) == 0
    assert f"{dearest[1]}  Default/" in capsys.readouterr().out
    assert main(["explain", str(planned), "--all"]) == 0
    whole = capsys.readouterr().out
    assert "t_op" in whole and whole.startswith(text.partition("Costliest operators")[0])


def test_explain_says_where_the_plans_step_is_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "llama2_7b", *SMALL, "--device-num", "8", "--out", str(tmp_path), "--hide", "gradients,weights"]
    assert main([*asked, "--fix", "data_parallel=8"]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path)]) == 0
    assert "as mindspore_graph runs it" in (text := capsys.readouterr().out) and "of gradients hidden" in text


@needs_mindspore
def test_verify_accepts_the_plan(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(planned), "--json", "--rank", "3"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data.keys() >= VERDICT_KEYS
    assert data["accepted"] is data["gradients_synchronised"] is data["collectives"]["equal"] is True
    assert data["collectives"]["predicted"] == data["collectives"]["compiled"]
    assert data["parameter_bytes"]["predicted"] == data["parameter_bytes"]["compiled"] > 0
    assert data["activation_peak_B"]["predicted"] == pytest.approx(data["activation_peak_B"]["compiled"], rel=0.05)
    assert main(["verify", str(planned)]) == 0
    assert capsys.readouterr().out.endswith("  verified\n")


@needs_mindspore
def test_verify_fails_where_the_prediction_is_wrong(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan that says it cuts what MindSpore cannot cut: rejected, exit code 1, with MindSpore's reason."""
    data = json.loads((planned / "plan.json").read_text())
    strategies = data["stages"][0]["strategies"]
    name = next(n for n in strategies if n.endswith("query-Linear/MatMul-op0"))
    strategies[name] = {"in": [[8, 1], [1, 1]], "out": [[1, 8]]}
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert main(["verify", str(tmp_path), "--edited", "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["accepted"] is False
    assert verdict["gradients_synchronised"] is False
    assert verdict["collectives"]["equal"] is False
    assert "MatMul" in verdict["reason"] or "strategy" in verdict["reason"].lower()


@needs_mindspore
def test_audit_of_hand_written_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", f"{NETWORKS}:plain", "--device-num", "8", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data.keys() >= VERDICT_KEYS
    assert data["collectives"]["predicted"] == data["collectives"]["compiled"] == sum(c["count"] for c in data["costs"])
    times = [c["time_s"] for c in data["costs"]]
    assert times == sorted(times, reverse=True)
    assert times[-1] > 0


@needs_mindspore
def test_audit_catches_a_gradient_that_is_not_summed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", f"{NETWORKS}:transposed_weight", "--device-num", "8", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["accepted"] is True
    assert data["gradients_synchronised"] is False
    assert data["unsynchronised"] == ["second"]
    assert main(["audit", f"{NETWORKS}:transposed_weight", "--device-num", "8"]) == 1
    assert "NOT summed over the ranks of their slice: second" in capsys.readouterr().out


@needs_mindspore
def test_audit_names_operators_without_a_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", f"{NETWORKS}:unsharded_sum", "--device-num", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["without_strategy"] == ["Default/ReduceSum-op0"]


@needs_mindspore
def test_a_factory_is_planned_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"{NETWORKS}:unsharded", "--device-num", "8", "--out", str(tmp_path)]) == 0
    assert main(["verify", str(tmp_path)]) == 0
    assert "Default/MatMul-op0" in (tmp_path / "plan.json").read_text()
    capsys.readouterr()
    assert "8 devices" in failure(capsys, "verify", tmp_path, "--rank", "8")
    assert "written by hand" not in failure(
        capsys, "plan", f"{NETWORKS}:missing", "--device-num", "8", "--out", tmp_path
    )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("plan", "llama2_7b", "--device-num", "8", "--out", ""), "--out"),
        (("capture", "llama2_7b", "--out", ""), "--out"),
        (("calibrate", "data.csv", "--cluster", "atlas_800t_a2", "--out", ""), "--out"),
        (("verify", ""), "DIR"),
        (("explain", " "), "DIR"),
        (("prove", ""), "DIR|file.py:factory"),
        (("validate", "", "--cluster", "atlas_800t_a2"), "DATA.csv"),
    ],
)
def test_an_empty_path_is_refused(arguments, name, capsys):
    assert f"argument {name}: is empty: give a path" in failure(capsys, *arguments)


@pytest.mark.parametrize("name", ["graph.json", "config.json"])
def test_a_file_of_brackets_is_one_line(name, tmp_path, capsys):
    (tmp_path / name).write_text('{"model_type": ' + "[" * 100_000)
    assert "nested too deep" in failure(capsys, "plan", tmp_path / name, "--device-num", "2", "--out", tmp_path / "out")


@pytest.mark.parametrize("command", ["plan", "capture", "prove", "audit"])
def test_a_file_without_a_function_is_refused(command, tmp_path, capsys):
    options = [] if command == "capture" else ["--device-num", "8"]
    options += ["--out", tmp_path / "out"] if command in ("plan", "capture") else []
    assert f"names no function: give {NETWORKS}:factory" in failure(capsys, command, NETWORKS, *options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "llama9"}, "unknown model 'llama9'"),
        ({"model": "models/llama9"}, "models/llama9: check the path; of a network on a hub give its"),
        ({"model": "llama9.json", "--dim": "hidden_size=64"}, "there is no file llama9.json"),
        ({"--cluster": "moonbase"}, "moonbase"),
        ({"--device-num": "7"}, "7"),
        ({"--device-num": "0"}, "--device-num is 0"),
        ({"--device-num": "eight"}, "eight"),
        ({"--device-num": "1000000"}, "plans are for at most 262144 devices, more than any cluster has"),
        ({"--device-num": "1" + "0" * 400}, "plans are for at most 262144 devices"),
        ({"--global-batch-size": "3"}, "3 samples cannot be cut for 8 devices"),
        ({"--global-batch-size": "0"}, "0"),
        ({"--seq-length": "-1"}, "-1"),
        ({"--num-layers": "0"}, "num_layers"),
        pytest.param({"--memory-limit": "1.8"}, "what fits: 16 devices", marks=pytest.mark.matrix),
        ({"--memory-limit": "-1"}, "--memory-limit is -1: give a number of GiB above 0"),
        ({"--memory-limit": "0"}, "--memory-limit is 0: "),
        ({"--memory-limit": "64GB"}, "--memory-limit: is 64GB: give a number of GiB, such as 60"),
        ({"--memory-limit": "1e-12"}, "--memory-limit is 1e-12: "),
        ({"--memory-limit": "inf"}, "--memory-limit is inf: "),
        ({"--memory-limit": "nan"}, "--memory-limit is nan: "),
        ({"--memory-limit": "0.3"}, "nothing fits 0.3 GiB on 8 devices: whatever the plan"),
        ({"--top": "-1"}, "--top is -1"),
        ({"--fix": "pipeline_stages"}, "give NAME=VALUE"),
        ({"--fix": "=4"}, "'=4': give NAME=VALUE"),
        ({"--max": "tp=2"}, "tp cannot be pinned"),
        ({"--fix": "*/atention/*=dp,tp"}, "no operator is called so; near are"),
        ({"--fix": "*.query.matmul=n/3"}, "no layout of attention.query.matmul on 8 devices is so"),
        ({"--memory-margin": "all"}, "give a share such as 10%"),
        ({"--attention": "linear"}, "linear"),
    ],
)
def test_bad_requests_are_one_line(
    change: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {
        "model": "llama2_7b",
        "--device-num": "8",
        "--global-batch-size": "8",
        "--seq-length": "512",
        "--num-layers": "2",
    }
    request |= change
    options = [f"{name}={value}" for name, value in request.items() if name != "model"]
    assert said in failure(capsys, "plan", request["model"], *options, "--out", tmp_path / "p")
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("pin", ["micro_batch_num=3", "model_parallel=8", "pipeline_stages=2"])
def test_a_batch_that_cannot_be_cut_is_planned_where_a_pin_does_without(pin, tmp_path, capsys):
    shape = ["--num-layers", "2", "--global-batch-size", "3", "--seq-length", "512", "--device-num", "8"]
    assert main(["plan", "llama2_7b", *shape, "--fix", pin, "--out", str(tmp_path / "p"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    name, _, number = pin.partition("=")
    assert found["global_batch_size"] == 3 and str(found[name]) == number
    said = failure(capsys, "plan", "llama2_7b", *shape, "--fix", "recompute=none", "--out", tmp_path / "q")
    assert "3 samples cannot be cut for 8 devices" in said and "--fix micro_batch_num=3" in said


def test_fit_answers_with_what_was_tried_and_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--num-layers", "2", "--global-batch-size", "8", "--seq-length", "512", "--memory-limit", "5"]
    assert main(["fit", "llama2_7b", *shape, "--least", "device_num", "--json", "--out", str(tmp_path / "p")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device_num"] == found["plan"]["device_num"] == max(one["device_num"] for one in found["tried"])
    assert [one["fits"] for one in found["tried"]] == [False] * (len(found["tried"]) - 1) + [True]
    assert all(one["why"] or one["peak_memory_B"] <= 5 << 30 for one in found["tried"])
    assert json.loads((tmp_path / "p" / "plan.json").read_text())["global_batch_size"] == 8
    asked = ["fit", "llama2_7b", *shape, "--device-num", "8", "--most", "seq_length", "--fix", "micro_batch_num=1"]
    assert main([*asked, "--up-to", "1024"]) == 0
    said = capsys.readouterr().out
    assert "llama2_7b: the largest seq_length that fits is 1024, the largest that was tried (--up-to 1024)" in said
    assert main([*asked, "--up-to", "100"]) == 0
    assert "the largest seq_length that fits is 100," in capsys.readouterr().out
    assert "1024  yes" in said
    assert "leave --device-num out" in failure(capsys, *asked[:-4], "--least", "device_num")
    assert "give --device-num" in failure(capsys, "fit", "llama2_7b", "--most", "seq_length")
    assert "no seq_length fits of those that were tried (128)" in failure(
        capsys, *asked, "--up-to", "128", "--memory-limit", "0.6"
    )
    assert "data_parallel = 3: there is no degree of 3" in failure(
        capsys, *asked, "--up-to", "128", "--fix", "data_parallel=3"
    )


def test_damaged_and_foreign_plans_are_one_line(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, graph = ((planned / name).read_text() for name in ("plan.json", "graph.json"))
    (tmp_path / "graph.json").write_text(graph)
    for text, said in (
        (plan[: len(plan) // 2], "truncated"),
        ('{"format": "something else"}', "is not a plan"),
        (graph, "is not a plan"),
    ):
        (tmp_path / "plan.json").write_text(text)
        for command in ("verify", "explain"):
            assert said in failure(capsys, command, tmp_path)
    assert "cannot read the plan" in failure(capsys, "explain", tmp_path / "nowhere")


def test_a_plan_for_another_graph_is_refused(planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "llama2_7b", *SMALL[:-1], "256", "--device-num", "8", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    (tmp_path / "graph.json").write_text((planned / "graph.json").read_text())
    assert "graph.json differs" in failure(capsys, "explain", tmp_path)
    assert main(["explain", str(tmp_path), "--edited"]) == 2
    assert "is for graph" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--latex",), ("--operator", "query.matmul")])
def test_formulas_and_another_plan_are_not_shown_at_once(option, planned, capsys):
    said = failure(capsys, "explain", planned, "--why-not", "dp=8", *option)
    assert f"--why-not compares two plans, and {option[0]} is for the formulas of one" in said


def test_a_folder_without_a_network_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = failure(capsys, "plan", tmp_path, "--device-num", "8", "--out", tmp_path / "plan")
    assert f"the folder {tmp_path} holds no config.json" in line


def test_an_unknown_operator_is_named(planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (planned / "graph.json").read_text().replace('"SiLU"', '"SiLV"')
    (tmp_path / "graph.json").write_text(text)
    line = failure(capsys, "plan", tmp_path / "graph.json", "--device-num", "8", "--out", tmp_path / "p")
    assert "SiLV" in line
    assert "has no signature" in line
    assert "no operator is called 'Conv3D'" in failure(capsys, "explain", planned, "--operator", "Conv3D")


@needs_mindspore
def test_explain_knows_the_operators_that_the_networks_file_registers(
    planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registers = (
        'import ms_symtensor\nms_symtensor.register("SiLV", "... d -> ... d", keeps_inputs=(0,))\nfactory = print\n'
    )
    (tmp_path / "own_operators.py").write_text(registers)
    (tmp_path / "graph.json").write_text((planned / "graph.json").read_text().replace('"SiLU"', '"SiLV"'))
    run_file(f"{tmp_path}/own_operators.py:factory")
    assert main(["plan", f"{tmp_path}/graph.json", "--device-num", "8", "--out", str(tmp_path / "p")]) == 0
    plan = json.loads((tmp_path / "p/plan.json").read_text())
    plan["source"] = {"factory": f"{tmp_path}/own_operators.py:factory"}
    (tmp_path / "p/plan.json").write_text(json.dumps(plan))
    monkeypatch.setattr(registry, "_registered", {})
    assert main(["explain", str(tmp_path / "p"), "--edited"]) == 2
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "p"), "--edited", "--trust"]) == 0
    assert f"running {tmp_path}/own_operators.py:factory, which the plan names" in capsys.readouterr().err


def test_a_reader_that_stops_reading_is_no_error(planned: Path) -> None:
    explain = [sys.executable, "-m", "ms_symtensor", "explain", str(planned)]
    with subprocess.Popen(explain, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_graph_whose_operator_has_another_output_is_refused(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = json.loads((planned / "graph.json").read_text())
    changed = [op for op in graph["ops"] if op["type"] == "Mul" and "block" not in op]
    for op in changed:
        op["outputs"] *= 2
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(graph))
    said = failure(capsys, "plan", file, "--device-num", "8", "--out", tmp_path / "plan")
    assert changed and "(Mul) has no output number 2" in said


def test_options_that_do_not_fit_a_graph(planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["plan", planned / "graph.json", "--device-num", "8", "--out", tmp_path / "p"]
    assert "--num-layers is for the model zoo" in failure(capsys, *common, "--num-layers", "3")
    assert "--global-batch-size 16 does not fit" in failure(capsys, *common, "--global-batch-size", "16")


def test_what_a_file_is_comes_before_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "adapter_config.json"
    other.write_text('{"peft_type": "LORA", "r": 8}')
    said = failure(capsys, "plan", other, "--num-layers", "3", "--device-num", "8", "--out", tmp_path / "p")
    assert "is not a graph" in said and "or give a config.json" in said


MEASURED = (
    "group,hidden,layers,heads,seq_len,n_devices,dp,tp,pp,micro_batch,global_batch,step_ms,consistent",
    # github.com/VIA-Research/vTrain@f8dda8473a, data/ground_truth_single.csv
    "h1024-L24-a16-s1024-gbs32|n8,1024,24,16,1024,8,2,2,2,4,32,219.732754,Y",
    "h1024-L24-a16-s1024-gbs8|n8,1024,24,16,1024,8,2,2,2,2,8,140.496352,Y",
    "h2048-L20-a16-s1024-gbs8|n8,2048,20,16,1024,8,1,4,2,2,8,160.6027,Y",
    "h2048-L16-a16-s1024-gbs8|n8,2048,16,16,1024,8,1,4,2,2,8,132.598596,Y",
)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(MEASURED), encoding="utf-8")
    return path


def test_validate_and_calibrate(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(measured), "--cluster", "a100_80g", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["rows"], plain["excluded"], plain["calibration"]) == (4, 0, None)
    assert 0 < plain["mape"] < 2
    errors = [abs(one["step_time_s"] / one["measured_step_time_s"] - 1) for one in plain["cases"]]
    assert plain["mape"] == pytest.approx(sum(errors) / len(errors)) and len(errors) == 4
    assert main(["validate", str(measured), "--cluster", "a100_80g", "--calibrate", "2", "--seed", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"]["steps"] == 2
    out = tmp_path / "new" / "mine.yaml"
    assert main(["calibrate", str(measured), "--cluster", "a100_80g", "--out", str(out)]) == 0
    assert [file.name for file in out.parent.iterdir()] == ["mine.yaml"]
    assert f"Written to {out}" in capsys.readouterr().out
    assert main(["validate", str(measured), "--cluster", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mape"] < plain["mape"]


def test_mistakes_in_tables(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--cluster", "a100_80g")
    assert "--calibrate is 0: give a number above 0" in failure(capsys, "validate", measured, *at, "--calibrate", 0)
    assert "--seed is -1: give 0 or more" in failure(capsys, "validate", measured, *at, "--seed", -1)
    assert "cannot write to" in failure(capsys, "calibrate", measured, *at, "--out", measured / "where.yaml")
    assert "cal: give a file *.yaml or *.yml" in failure(capsys, "calibrate", measured, *at, "--out", tmp_path / "cal")
    measured.write_text(measured.read_text().replace("132.598596", "soon"), encoding="utf-8")
    assert "steps.csv: row 5, column step_ms: 'soon' is not a number" in failure(capsys, "validate", measured, *at)
    assert "cannot read" in failure(capsys, "validate", tmp_path / "none.csv", *at)
    assert "unknown cluster 'moon'" in failure(capsys, "validate", measured, "--cluster", "moon")
    assert "steps.csv has steps: give --cluster" in failure(capsys, "validate", measured)


@pytest.mark.parametrize("pins", [pytest.param((), marks=pytest.mark.matrix), ("--fix", "context_parallel=2")])
def test_the_same_request_gives_the_same_files(pins: tuple[str, ...], tmp_path: Path) -> None:
    """Byte by byte, whatever the hash seed, but for the time that the search took."""
    written = []
    for seed in ("1", "4242"):
        out = tmp_path / seed
        command = [sys.executable, "-m", "ms_symtensor", "plan", "llama3_8b", "--num-layers", "4", "--device-num", "8"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(
            [*command, *pins, "--out", str(out)],
            check=True,
            capture_output=True,
            env=environment,
            cwd=NETWORKS.parents[2],
        )
        written.append({file.name: file.read_bytes() for file in out.iterdir() if file.name != "timing.json"})
    assert written[0] == written[1] and "report.txt" in written[0]


@pytest.mark.parametrize("written", ("plain", "recomputed"))
def test_what_is_written_by_hand_is_replaced_only_if_asked(written, tmp_path, capsys):
    pytest.importorskip("mindspore")
    factory = f"{Path(__file__).parent / 'bridge' / 'hand_written.py'}:{written}"
    arguments = ["plan", factory, "--device-num", "8", "--out", str(tmp_path / "plan")]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert ("has strategies" if written == "plain" else "already has recompute()") + " written by hand" in error
    assert "--replace-shard" in error
    assert not (tmp_path / "plan").exists()
    zoo = ["plan", "llama2_7b", "--device-num", "8", "--replace-shard", "--out", str(tmp_path / "plan")]
    assert main(zoo) == 2
    assert "--replace-shard is for file.py:factory" in capsys.readouterr().err
    assert main([*arguments, "--replace-shard"]) == 0
    assert main(["verify", str(tmp_path / "plan")]) == 0
