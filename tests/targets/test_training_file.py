"""Training files of MindFormers: read as its code reads them, priced, planned, and written so that little else changes."""

import difflib
import importlib.util
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.request import Request, free_B
from ms_symtensor.targets.mindformers.better import price_of
from ms_symtensor.targets.mindformers.reduced import reduced
from ms_symtensor.targets.mindformers.rules import refusal
from ms_symtensor.targets.mindformers.training_file import read_training_file
from ms_symtensor.targets.mindformers.writing import with_layout
from ms_symtensor.uniform.layout import ALL, Degrees, Recomputation, Selection, Stages, UniformLayout
from ms_symtensor.uniform.prices import Prices

FILE = Path(__file__).parents[2] / "examples" / "train.yaml"
CLUSTER = load("atlas_800t_a2")
ALLOWED = {
    "runner_config",
    "parallel_config",
    "parallel",
    "recompute_config",
    "model",
    "micro_batch_interleave_num",
    "callbacks",
}


def at(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """The file with some of its text replaced."""
    text = FILE.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    place = tmp_path / "train.yaml"
    place.write_text(text)
    return place


def test_what_a_file_says() -> None:
    found = read_training_file(FILE)
    assert (found.devices, found.config.batch_size, found.config.seq_length, found.config.num_layers) == (
        8,
        16,
        1024,
        9,
    )
    assert found.config.qk_norm and found.config.n_kv_heads == 8 and found.config.vocab_size == 32000
    layout = found.layout
    assert isinstance(layout, UniformLayout) and layout.degrees == Degrees(1, 4)
    assert layout.stages.chunks == ((5, 4),) and layout.stages.micro_batch_num == 16
    assert layout.recompute.marks == ((None,) * 5, (None,) * 4)
    assert layout.optimizer_level is OptimizerLevel.NONE


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("recompute: [2, 1]", [2, 1]),
        ("recompute: [true, 0]", [5, 0]),
        ("recompute: False", [0, 0]),
        ("recompute: [[9, 2]]", [5, 2]),
    ],
)
def test_recomputation_is_counted_as_mindformers_does(text: str, whole: list[int], tmp_path: Path) -> None:
    found = read_training_file(at(tmp_path, ("recompute: True", text)))
    assert isinstance(found.layout, UniformLayout)
    assert [sum(mark is None for mark in marks) for marks in found.layout.recompute.marks] == whole


def test_chunks_take_turns_in_a_list_of_stages(tmp_path: Path) -> None:
    """One number for a stage is dealt out to its chunks one by one."""
    chunks = "enable_parallel_optimizer: False\n  pipeline_config: {pipeline_interleave: True}"
    offset = ("offset: [1, 0]", "pp_interleave_num: 2\n    offset: [[1, 0], [0, 0]]")
    place = at(tmp_path, ("enable_parallel_optimizer: False", chunks), offset, ("recompute: True", "recompute: [3, 1]"))
    layout = read_training_file(place).layout
    assert isinstance(layout, UniformLayout) and layout.stages.chunks == ((3, 2), (2, 2))
    again = [[mark is None for mark in marks] for marks in layout.recompute.marks]
    assert again == [[True, True, False, True, False], [True, False, False, False]]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([("mode: 0 ", "mode: 1 ")], "give --target mindformers-pynative"),
        (
            [("model_parallel: 4", "model_paralel: 4")],
            "parallel_config.model_paralel is no key of MindFormers: is model_",
        ),
        ([("recompute_config:", "recompute_confg:")], "recompute_confg is no key of MindFormers: is recompute_config"),
        ([("run_mode: 'train'", "run_mode: 'predict'")], "only files for training"),
        ([("use_parallel: True", "use_parallel: False")], "use_parallel is False"),
        ([("parallel_mode: 1", "parallel_mode: 0")], "parallel_mode"),
        ([('model_type: "qwen3"', 'model_type: "gpt7"')], "model_type 'gpt7'"),
        ([('model_type: "qwen3"', 'model_type: "qwen3"\n    window_size: [1, 2]')], "window_size"),
        ([('model_type: "qwen3"', 'model_type: "qwen3"\n    normalization: LayerNorm')], "normalization 'LayerNorm'"),
        ([('model_type: "qwen3"', 'model_type: "qwen3"\n    add_bias_linear: True')], "add_bias_linear True"),
        ([('model_type: "qwen3"', 'model_type: "qwen3"\n    qk_layernorm: False')], "qk_layernorm False"),
        ([('max_device_memory: "58GB"', "max_device_memory: lots")], "max_device_memory is 'lots'"),
        ([("    seq_length: 1024", "    seq_length: 0")], "seq_length is 0"),
        ([("type: AdamW", "type: Muon")], "Muon"),
        ([("micro_batch_num: &mb 16", "micro_batch_num: &mb many")], "micro_batch_num is 'many'"),
        ([("seed: 42", "pretrained_model_dir: nowhere"), ('model_type: "qwen3"', "x: 1")], "holds no config.json"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(changes, reason: str, tmp_path: Path, capsys) -> None:
    assert main(["mindformers", str(at(tmp_path, *changes))]) == 2
    message = capsys.readouterr().err
    assert reason in message and "train.yaml" in message and len(message) < 460


def test_a_layout_that_mindformers_refuses_has_no_price(tmp_path: Path) -> None:
    found = read_training_file(at(tmp_path, ("offset: [1, 0]", "offset: 0")))
    assert isinstance(found.layout, str) and "must be 1, what is left of 9 blocks" in found.layout
    hybrid = "model_parallel: 1\n  context_parallel: 4\n  ulysses_degree_in_cp: 2"
    assert "hybrid_cp is not modelled" in str(read_training_file(at(tmp_path, ("model_parallel: 4", hybrid))).layout)
    slices = "mp_comm_recompute: True\n  recompute_slice_activation: True"
    assert "refuses it" in str(read_training_file(at(tmp_path, ("mp_comm_recompute: True", slices))).layout)


def test_dims_come_from_a_config_json(tmp_path: Path) -> None:
    dims = {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 9,
        "num_attention_heads": 8,
        "vocab_size": 32000,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "num_key_value_heads": 4, **dims}))
    text = yaml.safe_load(FILE.read_text())
    text["model"]["model_config"] = {"offset": [1, 0], "seq_length": 1024}
    place = tmp_path / "train.yaml"
    place.write_text(yaml.safe_dump(text))
    assert read_training_file(place, tmp_path).config.hidden_size == 512
    place.write_text(yaml.safe_dump(text | {"pretrained_model_dir": str(tmp_path)}))
    assert read_training_file(place).config.n_kv_heads == 4
    with pytest.raises(InputError, match="give --pretrained-model-dir"):
        place.write_text(yaml.safe_dump(text | {"pretrained_model_dir": "/path/to/dir"}))
        read_training_file(place)


def some_layout(rng: random.Random, layers: int) -> UniformLayout:
    """A layout of 8 devices and 16 samples."""
    number, tensor = rng.choice([(1, 1), (1, 2), (2, 2), (2, 4), (4, 2), (2, 1)])
    context = rng.choice([1, 1, 2]) if number * tensor <= 4 else 1
    data = 8 // (number * tensor * context)
    interleave = rng.choice([1, 2]) if number > 1 else 1
    counts = [n for n in (1, 2, 4, 8, 16) if 16 % (n * data) == 0 and n >= number]
    micro = rng.choice([n for n in counts if interleave == 1 or n % number == 0])
    stages = Stages(number, micro, interleave)
    if number > 1:
        held = list(stages.of(layers))
        held[-1] -= 1
        held[0] += 1
        stages = replace(stages, layers=tuple(held))
    whole = tuple(rng.randint(0, n) for n in stages.of(layers))
    core, activation = ((part, (ALL,)) for part in (Selection.ATTENTION_CORE, Selection.ACTIVATION))
    part = rng.choice([(), (activation,), (core, activation)])
    degrees = Degrees(data, tensor, tensor > 1, context, exchanges_heads=context == 1 or rng.random() < 0.5)
    return UniformLayout(degrees, stages, Recomputation(whole, part), OptimizerLevel(rng.choice([0, 1, 2])))


def test_what_a_written_file_says_has_the_plan_s_price(tmp_path: Path) -> None:
    """Thirty plans, each written into the file and read again: one step and one peak; the diff touches only named keys."""
    file, rng, seen = read_training_file(FILE), random.Random(7), 0
    request = Request(CLUSTER, 8, 16, 1024, free_B(CLUSTER))
    while seen < 30:
        layout = some_layout(rng, file.config.num_layers)
        if refusal(file.config, layout):
            continue
        seen += 1
        text, changes = with_layout(file, layout)
        assert {change.path[0] for change in changes} <= ALLOWED
        place = tmp_path / "planned.yaml"
        place.write_text(text)
        again = read_training_file(place)
        assert isinstance(again.layout, UniformLayout) and again.devices == 8 and again.config == file.config
        planned, said = (Prices(file.config, request).of(one) for one in (layout, again.layout))
        assert said.step_time_s == pytest.approx(planned.step_time_s, rel=1e-9)
        assert said.peak_memory_B == planned.peak_memory_B


@pytest.mark.parametrize(("stages", "blocks"), [(Stages(1, 8), 2), (Stages(2, 8, 2), 4), (Stages(4, 4), 4)])
def test_a_file_of_few_blocks_has_the_planned_degrees(stages: Stages, blocks: int, tmp_path: Path) -> None:
    file, degrees = read_training_file(FILE), Degrees(2, 4 // stages.number, stages.number < 4)
    layout = UniformLayout(degrees, stages, Recomputation((1,) * stages.number), OptimizerLevel.LEVEL1)
    small = reduced(file, layout, tmp_path)
    again = read_training_file(small.place)
    assert isinstance(again.layout, UniformLayout)
    assert again.layout.degrees == degrees and again.layout.optimizer_level is OptimizerLevel.LEVEL1
    assert (again.layout.stages.number, again.layout.stages.interleave) == (stages.number, stages.interleave)
    assert again.config == replace(file.config, num_layers=blocks, batch_size=small.samples) and small.blocks == blocks
    assert [marks[0] for marks in again.layout.recompute.marks] == [None] * stages.number, "the first block, as planned"
    assert stages.number > 1 or again.layout.recompute.marks[0][1] == frozenset()


def test_a_check_without_mindformers_is_refused(tmp_path: Path, capsys) -> None:
    if importlib.util.find_spec("mindformers") is not None:
        pytest.skip("MindFormers is installed")
    assert main(["mindformers", str(at(tmp_path)), "--check"]) == 2
    assert "pip install mindformers" in capsys.readouterr().err


def test_only_lines_of_changed_keys_change() -> None:
    file = read_training_file(FILE)
    layout = UniformLayout(Degrees(4, 2, True), Stages(1, 4), optimizer_level=OptimizerLevel.LEVEL1)
    text, changes = with_layout(file, layout)
    lines = [line for line in difflib.ndiff(file.text.splitlines(), text.splitlines()) if line[0] in "+-"]
    keys = {str(change.path[-1]) for change in changes}
    assert all(
        line[2:].split(":")[0].strip() in keys | {"per_print_times", "parallel_optimizer_config"} for line in lines
    )
    data = yaml.safe_load(text)
    assert "+   data_parallel: &dp 4  # Number of data parallel" in lines
    assert data["parallel"]["dataset_strategy"] == [[4, 1]] * 4 and "[*dp, 1]" in text
    assert data["callbacks"][0]["per_print_times"] == 1, "an alias of what is no degree keeps its value"
    assert data["callbacks"][1]["micro_batch_num"] == 1 == data["parallel_config"]["micro_batch_num"]
    assert data["lr_schedule"] == file.data["lr_schedule"] and data["optimizer"] == file.data["optimizer"]


def test_a_better_file(tmp_path: Path, capsys) -> None:
    out, place = tmp_path / "planned.yaml", at(tmp_path)
    place.write_bytes(FILE.read_bytes().replace(b"\n", b"\r\n"))
    arguments = [
        "mindformers",
        str(place),
        "--device-num",
        "8",
        "--max",
        "context_parallel=1",
        "--max",
        "pp_interleave_num=2",
    ]
    assert main([*arguments, "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert out.read_bytes().count(b"\r\n") == out.read_bytes().count(b"\n"), "lines end as in the file"
    assert found["planned"]["step_time_s"] < found["yours"]["step_time_s"] and found["planned"]["fits"]
    assert found["free_layouts"]["step_time_s"] > 0 and all(change["reason"] for change in found["changes"])
    assert main(["mindformers", str(out), "--fix", "data_parallel=8", "--fix", "micro_batch_num=1"]) == 0
    text = capsys.readouterr().out
    assert "yours" in text and "planned" in text and "free layouts" in text
    again = read_training_file(out)
    assert again.config.batch_size == found["global_batch_size"] == 16 and again.devices == 8


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("model_parallel: 4", "model_parallel: 16"), "8 key-value heads must divide by model_parallel 16"),
        (("model_parallel: 4", "model_parallel: 1"), "use_seq_parallel needs model_parallel above 1"),
    ],
)
def test_what_mindformers_does_not_build_has_no_price(change: tuple[str, str], reason: str, tmp_path: Path) -> None:
    place = at(tmp_path, change, ("use_seq_parallel: False", "use_seq_parallel: True"))
    file = read_training_file(place)
    limit_B = free_B(CLUSTER)
    request = Request(CLUSTER, file.devices, file.config.batch_size, file.config.seq_length, limit_B)
    assert reason in str(price_of(file, request))


def test_the_file_itself_is_not_overwritten(tmp_path: Path, capsys) -> None:
    place = at(tmp_path)
    assert main(["mindformers", str(place), "-o", str(place)]) == 2
    assert "give another place" in capsys.readouterr().err
