"""Configurations in uniform layouts: what is priced is what is planned, and what a plan's file says."""

import json
from pathlib import Path

import pytest

from ms_symtensor.cli import main
from ms_symtensor.report.text import seconds, size
from ms_symtensor.search.pareto import SHRINK


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


SMALL = ("--num-layers", "4", "--seq-length", "512", "--memory-margin", "0")
PINS = {
    "data": {"data_parallel": 8, "recompute": 0},
    "tensor": {"model_parallel": 4, "recompute": "full"},
    "unlike sequences": {"model_parallel": 2, "sequence_parallel": "no", "recompute": 0},
    "stages": {"pipeline_stages": 2, "model_parallel": 2, "micro_batch_num": 4, "recompute": 2, "pp_interleave_num": 1},
    "virtual stages": {"pipeline_stages": 2, "pp_interleave_num": 2, "micro_batch_num": 4, "recompute": 0},
    "accumulation": {"pipeline_stages": 1, "micro_batch_num": 2, "data_parallel": 8, "recompute": "select"},
    "context": {"context_parallel": 2, "data_parallel": 4, "recompute": 0, "micro_batch_num": 1},
}


@pytest.mark.parametrize("name", PINS)
def test_a_pinned_plan_in_uniform_layouts_is_the_estimate(name, tmp_path: Path, capsys) -> None:
    fix = [f"--fix={key}={value}" for key, value in {"optimizer_level": 1, **PINS[name]}.items()]
    common = ("llama3_8b", "--device-num", "8", *SMALL, *fix)
    priced = answer(capsys, "estimate", *common)
    every = [f"--fix={key}={priced[key]}" for key in ("data_parallel", "model_parallel", "context_parallel")]
    every += [f"--fix={key}={priced[key]}" for key in ("pipeline_stages", "micro_batch_num", "pp_interleave_num")]
    planned = answer(capsys, "plan", *common, *every, "--layouts", "uniform", "--out", str(tmp_path / "plan"))
    again = answer(capsys, "estimate", "--plan", str(tmp_path / "plan"))
    for found in (planned, again):
        assert found["step_time_s"] == pytest.approx(priced["step_time_s"], rel=1e-9)
        assert found["peak_memory_B"] == priced["peak_memory_B"]
    assert priced["tokens_per_s_device"] == pytest.approx(16 * 512 / priced["step_time_s"] / 8)
    assert 0 < priced["mfu"] < 1 and "optimality_gap" not in priced


def test_a_plan_in_free_layouts_is_estimated_as_it_was_priced(tmp_path: Path, capsys) -> None:
    common = ("mixtral_8x7b", "--device-num", "8", *SMALL, "--fix=pipeline_stages=2")
    planned = answer(capsys, "plan", *common, "--out", str(tmp_path / "plan"))
    again = answer(capsys, "estimate", "--plan", str(tmp_path / "plan"))
    assert again["step_time_s"] == pytest.approx(planned["step_time_s"], rel=1e-9)
    assert again["peak_memory_B"] == planned["peak_memory_B"]
    assert again["experts_s"] == pytest.approx(planned["experts_s"])


def test_experts_are_lines_of_the_breakdown(capsys) -> None:
    common = ("mixtral_8x7b", "--device-num", "8", *SMALL, "--fix=expert_parallel=4")
    found = answer(capsys, "estimate", *common)
    experts = found["experts_s"]
    assert set(experts) == {"dispatch", "permutation", "products", "imbalance"} and min(experts.values()) > 0
    assert experts["dispatch"] < found["time_breakdown_s"]["communication"]
    assert experts["products"] + experts["permutation"] < found["time_breakdown_s"]["compute"]
    # 2 of 8 experts: 128 of 512 tokens each, in 144 places, which are a multiple of 16
    assert experts["imbalance"] / experts["products"] == pytest.approx(1 - 128 / 144)
    assert main(["estimate", *common]) == 0
    assert "(experts: dispatch)" in capsys.readouterr().out
    assert "experts_s" not in answer(capsys, "estimate", "llama2_7b", "--device-num", "8", *SMALL)


def test_what_is_hidden_is_no_part_of_the_step(capsys) -> None:
    common = ("estimate", "llama2_7b", "--device-num", "8", *SMALL)
    plain, hidden = answer(capsys, *common), answer(capsys, *common, "--hide", "gradients,weights")
    assert hidden["step_time_s"] < plain["step_time_s"]
    assert hidden["hidden_s"]["gradients"] > 0 and plain["hidden_s"] == {}
    assert answer(capsys, *common, "--hide", "none")["step_time_s"] == plain["step_time_s"]


def test_a_list_of_configurations(tmp_path: Path, capsys) -> None:
    file = tmp_path / "run.json"
    one = {"model": "llama2_7b", "num_layers": 2, "device_num": 8, "fix": {"model_parallel": 8}}
    file.write_text(json.dumps([one, one | {"fix": {"data_parallel": 8}}]), encoding="utf-8")
    found = answer(capsys, "estimate", "--from", str(file))["estimates"]
    assert [each["model_parallel"] for each in found] == [8, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama2_7b", "--device-num", "8", "--fix=model_parallel=3"), "does not divide 8 devices"),
        (("llama2_7b", "--device-num", "8", "--fix=data_parallel=4"), "= 4 devices, not 8"),
        (("llama2_7b", "--device-num", "8", "--hide", "everything"), "nothing that can be hidden"),
        (("llama2_7b", "--device-num", "8", "--runtime", "mine"), "unknown run-time"),
        (("llama2_7b", "--device-num", "8", "--fix=*.query.matmul=(8,1)(1,1)"), "no operators by name"),
        (("llama2_7b", "--device-num", "8", "--fix=pp_interleave_num=2"), "one pipeline stage has 2 virtual stages"),
        (
            ("llama2_7b", "--device-num", "8", "--fix=pipeline_scheduler=gpipe"),
            "is an order of passes of several stages",
        ),
        (("llama2_7b", "--device-num", "8", "--cluster=b200", "--fix=swap_optimizer=yes"), "says nothing of its host"),
        ((), "give one of MODEL"),
    ],
)
def test_mistakes_are_named(arguments, said, capsys) -> None:
    assert main(["estimate", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_offloaded_states_take_host_memory_in_every_layout(tmp_path: Path, capsys) -> None:
    common = ("llama2_7b", "--device-num", "8", *SMALL, "--fix=swap_optimizer=yes", "--fix=data_parallel=8")
    free, uniform = (
        answer(capsys, "plan", *common, f"--layouts={layouts}", f"--out={tmp_path / layouts}")["host_memory_B"]
        for layouts in ("free", "uniform")
    )
    estimated = answer(capsys, "estimate", *common, "--fix=optimizer_level=1")["host_memory_B"]
    assert free == uniform == estimated > 1e9
    scarce = tmp_path / "scarce.yaml"
    host = {"bandwidth_Bps": 20e9, "memory_B": 1 << 29}
    entry = "".join(f"  {key}: {{value: {value}, source: mine}}\n" for key, value in host.items())
    scarce.write_text(f"name: scarce\nbased_on: atlas_800t_a2\nhost:\n{entry}", encoding="utf-8")
    arguments = ["plan", *common, "--layouts=uniform", f"--cluster={scarce}", f"--out={tmp_path / 'none'}"]
    assert main(arguments) == 2
    assert "of host memory, which has 0.5 GiB for each" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--fix=data_parallel=2", "--device-num=4", "--global-batch-size=4"])
def test_what_a_plan_says_itself_is_refused_beside_it(option: str, capsys) -> None:
    assert main(["estimate", "--plan", "anywhere", option]) == 2
    assert f"{option.split('=')[0]} is for a MODEL, and a plan has its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("device_num", "8", "a whole number"), ("device_num", float("nan"), "a whole number"), ("fix", "dp", "an object or a list"),
     ("seq_length", 1e99, "a whole number"), ("dim", "a=1", "a list"), ("model", 3, "a text"), ("lora", True, "a whole number"),
     ("dim", [1], "a list of texts"), ("fix", [None], "an object or a list of texts")],
)  # fmt: skip
def test_values_of_a_list_are_of_their_kind(name: str, value: object, said: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps([{"model": "llama2_7b", "device_num": 8, name: value}]), encoding="utf-8")
    assert main(["estimate", "--from", str(file)]) == 2
    assert f"entry 0: {name} is {value!r}: give {said}" in capsys.readouterr().err


def test_the_entry_of_a_list_that_cannot_be_priced_is_named(tmp_path: Path, capsys) -> None:
    file = tmp_path / "list.json"
    file.write_text('[{"model": "gpt2_xl", "device_num": 2, "num_layers": 1}, {"model": "gpt2_xl"}]', encoding="utf-8")
    assert main(["estimate", "--from", str(file)]) == 2
    assert f"{file}: entry 1: --device-num is missing" in capsys.readouterr().err


def test_whether_a_plan_fits_is_told_at_the_limit_that_is_given(capsys, tmp_path):
    assert main(["plan", "gpt2_xl", "--device-num", "8", "--global-batch-size", "8", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    for limit, fits in (("1", False), ("64", True)):
        assert main(["estimate", "--plan", str(tmp_path), "--memory-limit", limit, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["memory_limit_B"], found["fits"]) == (int(limit) << 30, fits)


def test_a_plan_on_devices_with_less_memory_fits_these_or_not(capsys, tmp_path):
    assert main(["plan", "gpt2_xl", "--device-num", "8", "--global-batch-size", "64", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    for cluster, limit_GiB in (("atlas_800t_a2", 55.1), ("atlas_800t_a3", 55.1), ("atlas_800t_a2_910b4", 29.0)):
        assert main(["estimate", "--plan", str(tmp_path), "--cluster", cluster, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["memory_limit_B"] == pytest.approx(limit_GiB * (1 << 30), rel=1e-3)
        assert found["fits"] is (found["peak_memory_B"] <= found["memory_limit_B"])


def test_a_front_of_uniform_layouts_has_no_others(capsys, tmp_path):
    """Its second plan is the best in uniform layouts within so much memory."""
    common = ("llama2_7b", *SMALL, "--device-num", "8", "--layouts", "uniform", "--out", str(tmp_path))
    first, second = answer(capsys, "plan", *common, "--pareto")["pareto"][:2]
    limit_GiB = int(SHRINK * first["peak_memory_B"]) / (1 << 30)
    alone = answer(capsys, "plan", *common, "--memory-limit", repr(limit_GiB))
    assert {name: alone[name] for name in list(second)[:-1]} == {name: second[name] for name in list(second)[:-1]}
    assert len(alone["recompute"]) == second["recompute"]


@pytest.mark.parametrize(("runtime", "pin"), [("megatron", "model_parallel=4"), ("fsdp", "data_parallel=8")])
def test_a_plan_for_a_run_time_has_its_price_and_fits(runtime, pin, capsys, tmp_path):
    """Whatever the run-time keeps or gathers beside what MindSpore's graphs do."""
    common = ("llama2_7b", "--num-layers=4", "--seq-length=2048", "--device-num=8", f"--fix={pin}", "--memory-limit=8")
    planned = answer(capsys, "plan", *common, f"--runtime={runtime}", f"--out={tmp_path}")
    priced = answer(capsys, "estimate", "--plan", str(tmp_path))
    assert planned["fits"] and planned["peak_memory_B"] <= planned["memory_limit_B"] == 8 << 30
    for name in ("step_time_s", "peak_memory_B", "memory_breakdown_B", "memory_limit_B", "fits"):
        assert priced[name] == pytest.approx(planned[name], rel=1e-9), name
    reported = answer(capsys, "report", str(tmp_path))
    assert reported["step_time_s"] == planned["step_time_s"]


def test_alternatives_under_a_run_time_have_the_price_of_estimates(capsys, tmp_path):
    common = ("llama2_7b", "--num-layers=4", "--seq-length=1024", "--device-num=8", "--runtime=megatron")
    assert main(["plan", *common, f"--out={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    priced = answer(
        capsys, "estimate", *common, "--fix=data_parallel=2", "--fix=model_parallel=4", "--fix=recompute=none"
    )
    row = next(line for line in shown.splitlines() if "data 2 x tensor 4 with sequence parallelism" in line)
    assert seconds(priced["step_time_s"]) in row and size(priced["peak_memory_B"]) in row


def test_where_nothing_fits_a_run_time_it_is_named(capsys, tmp_path):
    asked = (
        "llama2_7b",
        "--num-layers=4",
        "--seq-length=512",
        "--device-num=8",
        "--fix=data_parallel=8",
        "--memory-limit=5",
    )
    assert main(["plan", *asked, "--runtime=megatron", f"--out={tmp_path}"]) == 2
    assert "nothing found that fits 5.0 GiB" in (said := capsys.readouterr().err)
    assert "with what --runtime megatron keeps" in said and "what fits: 16 devices" in said and len(said) < 450


def test_more_recomputed_blocks_than_there_are_are_refused(capsys):
    assert main(["estimate", "gpt2_xl", "--device-num=8", "--global-batch-size=8", "--fix=recompute=49"]) == 2
    assert "recompute=49: the network has 48 repeated blocks" in capsys.readouterr().err


@pytest.mark.parametrize(("margin", "left"), [(0, 58.0), (4, 54.0), ("50%", 29.0)])
def test_a_list_gives_a_margin_as_a_number_or_a_text(margin, left, capsys, tmp_path):
    file = tmp_path / "list.json"
    entry = {"model": "gpt2_xl", "device_num": 8, "global_batch_size": 8, "memory_margin": margin}
    file.write_text(json.dumps([entry]), encoding="utf-8")
    assert main(["estimate", "--from", str(file), "--json"]) == 0
    assert f'"memory_limit_B": {int(left * (1 << 30))}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mixtral_8x7b", "--fix=context_parallel=4"), "give --token-groups 4"),
        (("llama2_70b", "--fix=expert_parallel=2"), "llama2_70b has no experts"),
        (("resnet50",), "resnet50 has no uniform layouts"),
        (("llama2_70b", "--fix=swap_optimizer=yes"), "give more devices or a smaller batch"),
        (("llama2_70b",), "or --fix swap_optimizer=yes"),
        (
            ("llama2_7b", "--num-layers=5", "--fix=pp_interleave_num=3"),
            "at least 2 stages × 3 virtual stages = 6, 5 blocks",
        ),
        (
            ("qwen3_30b_a3b", "--fix=data_parallel=2", "--fix=model_parallel=2", "--fix=context_parallel=4"),
            "none has context_parallel = 4; leave that out",
        ),
        (
            ("qwen3_30b_a3b", "--fix=data_parallel=1", "--fix=model_parallel=1", "--fix=pipeline_stages=4"),
            "none has pipeline_stages = 4, data_parallel = 1, model_parallel = 1; leave one of them out",
        ),
        (
            (
                "gpt2_xl",
                "--num-layers=4",
                "--fix=data_parallel=4",
                "--fix=model_parallel=1",
                "--fix=optimizer_level=level3",
            ),
            "MindSpore does not combine optimizer_level level3 with pipeline stages",
        ),
    ],
)
def test_where_no_uniform_layout_is_left_it_is_said_why(arguments, said, capsys, tmp_path) -> None:
    general = ("--layouts=uniform", "--device-num=8", "--memory-limit=20", f"--out={tmp_path}")
    assert main(["plan", *arguments, *general]) == 2
    assert said in capsys.readouterr().err


def test_what_is_left_out_of_a_file_is_told_by_every_command(capsys, tmp_path):
    text = {"model_type": "qwen3_vl_text", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"head_dim": 128, "num_key_value_heads": 4, "intermediate_size": 1024, "vocab_size": 4096}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "qwen3_vl", "text_config": text, "vision_config": {"depth": 2}}))
    common = (str(file), "--device-num=2", "--seq-length=128", "--global-batch-size=4")
    folders = {"estimate": (), "plan": (f"--out={tmp_path / 'plan'}",), "sweep": (f"--out={tmp_path / 'sweep'}",)}
    for command, out in folders.items():
        assert main([command, *common, *out]) == 0
        assert capsys.readouterr().err.count("vision_config is left out") == 1
