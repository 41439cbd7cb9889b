"""Plans for MindFormers' PyNative mode."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.pynative import compared
from ms_symtensor.bridge.pynative.interpreter import ask
from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers_pynative.checks import refusal
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, Recompute, degrees_of
from ms_symtensor.targets.mindformers_pynative.file import planned_config
from ms_symtensor.targets.mindformers_pynative.layers import EXCHANGES
from ms_symtensor.targets.mindformers_pynative.planning import priced, read_config
from ms_symtensor.targets.mindformers_pynative.price import price
from tests.targets.pynative.test_pynative_audit import DEEPSEEK, QWEN, changed, needs_mindformers
from tests.targets.pynative.test_pynative_predicted import DEEPSEEK as DEEPSEEK_SHAPE
from tests.targets.pynative.test_pynative_predicted import QWEN as QWEN_SHAPE

CLUSTER = "atlas_800t_a2"
REQUESTS = {
    "qwen3_32b": ("--device-num", "64", "--global-batch-size", "128"),
    "deepseek_v3": ("--device-num", "1024", "--global-batch-size", "1024"),
}


def planned(model: str, folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    request = ("plan", model, *REQUESTS.get(model, ()), *more)
    assert main([*request, "--target", "mindformers-pynative", "--out", str(folder), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of DeepSeek-V3's plan."""
    folder = tmp_path_factory.mktemp("deepseek")
    request = ["plan", "deepseek_v3", *REQUESTS["deepseek_v3"], "--target", "mindformers-pynative"]
    assert main([*request, "--out", str(folder)]) == 0
    return folder


def figures(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "pynative.json").read_text())
    return found


def test_a_plan_says_what_its_degrees_take_in_graph_mode(
    deepseek: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fix = ("--fix", "tensor_parallel=8", "--num-layers", "8", "--device-num", "8", "--global-batch-size", "8")
    found = planned("qwen3_32b", tmp_path, capsys, *fix)["graph_mode"]
    again = ["estimate", "qwen3_32b", "--num-layers", "8", "--device-num", "8", "--global-batch-size", "8"]
    pins = ("model_parallel=8", "sequence_parallel=yes", "data_parallel=1")
    assert main([*again, *(text for pin in pins for text in ("--fix", pin)), "--json"]) == 0
    priced_there = json.loads(capsys.readouterr().out)
    assert found["step_time_s"] == pytest.approx(priced_there["step_time_s"], rel=0.1)
    assert "in graph mode" in (tmp_path / "report.txt").read_text()
    told = figures(deepseek)["graph_mode"]
    assert told["step_time_s"] is None and "needs" in told["reason"]


@pytest.mark.parametrize("model", REQUESTS)
def test_a_plan_is_written_and_read_again_at_its_price(
    model: str, deepseek: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = deepseek
    if model != "deepseek_v3":
        planned(model, tmp_path, capsys)
        folder = tmp_path
    data = figures(folder)
    (file,) = folder.glob("*pynative*.yaml")
    assert data["file"] == file.name
    assert data["peak_memory_B"] <= load(CLUSTER).device.hbm_usable_B
    again = priced(read_config(str(file)), data["device_num"], load(CLUSTER))
    assert again.step_time_s == pytest.approx(data["step_time_s"], rel=1e-3)
    assert again.peak_memory_B == data["peak_memory_B"]


def test_no_degrees_of_a_graph_mode_file_are_faster(deepseek: Path) -> None:
    """Those of MindFormers' own pretrain_deepseek3_671b, as far as PyNative takes them; whole layers are recomputed there."""
    data = figures(deepseek)
    for tensor, pipeline, expert in ((4, 16, 16), (2, 16, 32), (1, 16, 64)):
        degrees = Degrees(
            1024, tensor=tensor, pipeline=1, expert=expert, global_batch=1024, recompute=Recompute(((0, 61),))
        )
        assert price(DEEPSEEK_SHAPE, degrees, load(CLUSTER)).step_time_s >= data["step_time_s"]
        ranges = tuple(((4 * stage, min(4 * stage + 3, 60)),) for stage in range(pipeline))
        staged = Degrees(
            1024, tensor=tensor, pipeline=pipeline, expert=expert, stage_layers=ranges, global_batch=1024,
            recompute=Recompute(((0, 61),)),
        )  # fmt: skip
        assert not refusal(DEEPSEEK_SHAPE, staged)
        assert price(DEEPSEEK_SHAPE, staged, load(CLUSTER)).step_time_s >= data["step_time_s"]


def test_experts_are_not_sent_again_where_there_is_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what says so is priced as planned."""
    request = (
        "--fix",
        "expert_parallel=16",
        "--num-layers",
        "6",
        "--device-num",
        "64",
        "--global-batch-size",
        "256",
        "--memory-limit",
        "50",
    )
    data = planned("deepseek_v3", tmp_path, capsys, *request)
    config = read_config(str(tmp_path / data["file"]))
    assert set(config["recompute"]["exclude_op"]) <= set(EXCHANGES)
    assert priced(config, 64, load(CLUSTER)).step_time_s == pytest.approx(data["step_time_s"], rel=1e-3)
    del config["recompute"]["exclude_op"]
    assert priced(config, 64, load(CLUSTER)).step_time_s > data["step_time_s"]


def test_fixed_keys_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = planned("qwen3_32b", tmp_path, capsys, "--fix", "tensor_parallel=4", "--fix", "local_batch_size=2")
    assert (data["degrees"]["tensor"], data["degrees"]["local_batch"]) == (4, 2)
    assert main(["plan", "qwen3_32b", *REQUESTS["qwen3_32b"], "--target", "mindformers-pynative", "--out", str(tmp_path),
                 "--fix", "model_parallel=4"]) == 2  # fmt: skip
    assert "tensor_parallel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("llama2_7b", "it has no qk norm, Qwen3 (dense) has;"),
        ("qwen3_30b_a3b", "it has experts, Qwen3 (dense) has none;"),
        ("gpt2_xl", "its norm is 'layer_norm', that of Qwen3 (dense) 'rms_norm';"),
    ],
)
def test_a_network_without_a_pynative_class_is_told_with_what_differs(
    model: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", model, "--device-num", "8", "--target", "mindformers-pynative", "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "no PyNative class" in told and why in told


def test_what_does_not_fit_is_told_with_the_least_that_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ["plan", "qwen3_32b", "--device-num", "4", "--target", "mindformers-pynative", "--out", str(tmp_path)]
    assert main(request) == 2
    assert "GiB" in capsys.readouterr().err


def test_a_users_file_keeps_its_other_sections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = yaml.safe_load(QWEN.read_text())
    config["checkpoint"] = {"save_path": "./mine"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    request = ["plan", str(tmp_path / "mine.yaml"), "--device-num", "64", "--target", "mindformers-pynative"]
    assert main([*request, "--out", str(tmp_path / "out")]) == 0
    written = yaml.safe_load((tmp_path / "out" / "pretrain_mine_pynative.yaml").read_text())
    assert written["checkpoint"] == {"save_path": "./mine"}
    assert written["training"]["global_batch_size"] == 64


def test_degrees_are_written_as_they_are_read() -> None:
    config = yaml.safe_load(DEEPSEEK.read_text())
    degrees = Degrees(
        1024, tensor=2, context=2, context_method="hybrid", ulysses=0, pipeline=2, interleave=2, expert=8, shard=32,
        stage_layers=(((0, 14), (30, 44)), ((15, 29), (45, 60))), schedule="interleaved_1f1b", dense_shard=8,
        reshard="always", global_batch=1024, recompute=Recompute(((0, 3),), (("mlp", ((4, 60),)),)),
    )  # fmt: skip
    degrees = Degrees(**{**vars(degrees), "context_method": "colossal"})
    assert degrees_of(planned_config(config, DEEPSEEK_SHAPE, degrees), 1024) == degrees


def test_hyper_parallels_own_file_is_marked_as_not_run(deepseek: Path) -> None:
    data = figures(deepseek)
    text = (deepseek / "hyper_parallel_train.yaml").read_text()
    assert "Not run here" in text
    sections = yaml.safe_load(text)
    degrees = data["degrees"]
    assert sections["accelerator"]["tp_size"] == degrees["tensor"]
    assert sections["accelerator"]["ep_size"] == degrees["expert"]
    assert sections["training"] == {"global_batch_size": 1024, "micro_batch_size": degrees["local_batch"]}
    assert sections["activation_checkpoint"]["mode"] == "full"


def test_sharding_less_shares_fewer_bytes_and_needs_more_memory() -> None:
    base = Degrees(64, global_batch=128)
    less = Degrees(64, global_batch=128, shard=8)
    all_ranks, eight = (price(QWEN_SHAPE, one, load(CLUSTER)) for one in (base, less))
    assert eight.stages[0].memory["optimizer"] == pytest.approx(8 * all_ranks.stages[0].memory["optimizer"], rel=0.01)
    assert eight.stages[0].parts["parameters"] <= all_ranks.stages[0].parts["parameters"]


@pytest.mark.matrix
@needs_mindformers
@pytest.mark.parametrize("model", REQUESTS)
def test_a_planned_file_loads_and_does_what_was_predicted(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = planned(model, tmp_path, capsys)
    config = read_config(str(tmp_path / data["file"]))
    loaded = ask({"task": "load", "config": config, "device_num": data["device_num"]})
    assert loaded["micro_batches"] == data["micro_batches"], loaded
    (found,) = ask({"task": "traces", "requests": [{"config": config, "device_num": data["device_num"]}]})["found"]
    row = compared(config, data["device_num"], found)
    assert row.equal, row
    assert row.kept_ratio == pytest.approx(1, abs=0.05)


def test_a_file_is_priced_as_it_is_and_planned_with_its_comments_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = QWEN.read_text().replace("  tensor_parallel: 4\n", "  tensor_parallel: 4 # of 8\n")
    (tmp_path / "mine.yaml").write_text(text + "# the end\n")
    request = ["mindformers", str(tmp_path / "mine.yaml"), "--target", "mindformers-pynative", "--device-num", "64"]
    assert main([*request, "-o", str(tmp_path / "planned.yaml"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["step_time_s"] <= data["as_it_is"]["step_time_s"]
    written = (tmp_path / "planned.yaml").read_text()
    assert "# of 8" in written
    assert "# the end" in written
    again = priced(read_config(str(tmp_path / "planned.yaml")), 64, load(CLUSTER))
    assert again.step_time_s == pytest.approx(data["step_time_s"], rel=1e-3)
    assert main([*request, "-o", str(tmp_path / "mine.yaml")]) == 2


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, "--target", "mindformers-pynative"]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    ["--certify", "--pareto", "--top=3", "--hide=gradients", "--lora=8", "--max=tensor_parallel=2", "--dtype=float16"],
)
def test_an_option_that_is_not_read_is_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = ("plan", "qwen3_32b", *REQUESTS["qwen3_32b"], "--out", str(tmp_path))
    assert f"{option.partition('=')[0]} is not for" in refused(capsys, *request, option)
    assert "--hide is not for" in refused(capsys, "mindformers", str(QWEN), "--hide", "gradients")
    assert "--rank is not for" in refused(capsys, "audit", str(QWEN), "--rank", "1")


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        (("tensor_parallel=3",), "leave a --fix out"),
        (("dense_fsdp_shard_size=3",), "leave a --fix out"),
        (("tensor_parallel=4", "tensor_parallel=8"), "given twice"),
    ],
)
def test_pins_that_cannot_be_are_told(
    fix: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = [f"--fix={one}" for one in fix]
    assert words in refused(capsys, "plan", "qwen3_32b", *REQUESTS["qwen3_32b"], "--out", str(tmp_path), *pins)


def test_pins_beyond_what_is_searched_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = ("--fix=local_batch_size=8", "--fix=context_parallel=8", "--fix=dense_fsdp_shard_size=16", "--num-layers=4")
    data = planned("qwen3_32b", tmp_path, capsys, *pins)
    assert [data["degrees"][name] for name in ("local_batch", "context", "dense_shard")] == [8, 8, 16]


@pytest.mark.parametrize("model", ["net.py:factory", str(QWEN.parents[4] / "README.md")])
def test_what_is_neither_of_the_zoo_nor_a_file_of_the_trainer_is_told(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "give qwen3_32b or deepseek_v3" in refused(
        capsys, "plan", model, "--device-num", "8", "--out", str(tmp_path)
    )


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"parallelism": {"tensor_parallel": "four"}}, "parallelism > tensor_parallel must be a whole number"),
        ({"parallelism": {"pipeline_parallel_layers_per_stage": [3]}}, "must be a text"),
        ({"training": {"local_batch_size": -1}}, "local_batch_size must be a whole number from 1 up"),
        ({"model": {"hidden_size": None}}, "no hidden_size"),
        ({"model": {"model_type": ["qwen3"]}}, "model_type"),
        ({"recompute": {"mode": "full"}}, "full_recompute_layer is missing"),
        ({"recompute": {"mode": "some"}}, "recompute.mode is 'some'"),
    ],
)
def test_a_damaged_file_is_told_in_a_line(
    sections: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(capsys, "mindformers", changed(QWEN, tmp_path, **sections), "--device-num", "64")
    assert words in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("file", "sections", "words"),
    [
        (QWEN, {"parallelism": {"sequence_parallel": False}}, "needs sequence_parallel"),
        (QWEN, {"recompute": {"mode": "full", "full_recompute_layer": ["60-80"]}}, "layer 80 is recomputed"),
        (DEEPSEEK, {"parallelism": {"pipeline_parallel": 2, "pipeline_parallel_layers_per_stage": ["0-9", "10-20"]}},
         "not those of the network, 0-60"),
    ],
)  # fmt: skip
def test_degrees_that_train_no_such_network_have_no_price(
    file: Path, sections: dict[str, Any], words: str, tmp_path: Path
) -> None:
    devices = 64 if file == QWEN else 1024
    with pytest.raises(InputError, match=words):
        priced(read_config(changed(file, tmp_path, **sections)), devices, load(CLUSTER))


def test_what_has_no_price_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = changed(QWEN, tmp_path, parallelism={"cpu_offload": True}, swap={"enable": True})
    assert main(["mindformers", file, "--target", "mindformers-pynative", "--device-num", "64"]) == 0
    assert "no price is known for parallelism.cpu_offload, swap.enable" in capsys.readouterr().err


def test_another_length_of_a_users_file_is_that_of_its_data_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ["plan", str(QWEN), "--device-num", "64", "--target", "mindformers-pynative", "--out", str(tmp_path)]
    assert main([*request, "--seq-length", "8192"]) == 0
    written = yaml.safe_load(next(tmp_path.glob("*_pynative.yaml")).read_text())
    assert written["model"]["seq_length"] == written["train_dataset"]["dataloader"]["config"]["seq_length"] == 8192
    capsys.readouterr()
    assert "--seq-length is -5" in refused(capsys, *request[:4], *request[6:], "--seq-length", "-5")
    assert "--num-layers is for" in refused(capsys, *request[:4], *request[6:], "--num-layers", "5")


def test_other_commands_say_what_such_a_folder_is(deepseek: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(deepseek)]) == 2
    assert "is a plan for mindformers-pynative" in capsys.readouterr().err


def test_larger_micro_batches_are_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = ("--device-num", "512", "--global-batch-size", "1024")
    found = planned("deepseek_v3", tmp_path, capsys, *request)
    pinned = planned("deepseek_v3", tmp_path, capsys, *request, "--fix", "local_batch_size=8")
    assert found["step_time_s"] <= pinned["step_time_s"]


CONFIGS = Path(__file__).parents[2] / "data/configs"


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("qwen3_8b", "num_hidden_layers", 36),
        pytest.param("kimi_k2", "n_routed_experts", 384, marks=pytest.mark.matrix),
    ],
)
def test_a_config_json_becomes_a_file(
    name: str, key: str, value: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ("--device-num", "1024", "--global-batch-size", "2048", "--cluster", "cloudmatrix384")
    found = planned(str(CONFIGS / f"{name}.json"), tmp_path, capsys, *size)
    config = read_config(str(tmp_path / found["file"]))
    assert config["model"][key] == value
    assert priced(config, 1024, load("cloudmatrix384")).step_time_s == pytest.approx(found["step_time_s"], rel=1e-9)


@pytest.mark.parametrize(
    ("name", "words"), [("olmo_3_7b", "its qk_norm is 'projection'"), ("glm_4_7", "its qkv_bias is True")]
)
def test_what_another_network_has_is_named(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(CONFIGS / f"{name}.json")
    assert main(["plan", file, "--device-num", "64", "--target", "mindformers-pynative", "--out", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
