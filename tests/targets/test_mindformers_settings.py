"""What MindFormers' files say of a layout, and which layouts they cannot say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from model_zoo import dimensions_of
from model_zoo.config import BlockKind, DeltaSizes, IndexerSizes, StateSpaceSizes
from ms_symtensor.cli import main
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.exporter import CannotSayError
from ms_symtensor.targets.mindformers.settings import settings_of
from ms_symtensor.uniform.layout import ALL, Degrees, Recomputation, Selection, Stages, UniformLayout

CONFIG = dimensions_of("llama3_8b", num_layers=7, batch_size=64)
STAGED = UniformLayout(Degrees(2, 2, True), Stages(2, 8), optimizer_level=OptimizerLevel.LEVEL2)


def said(layout: UniformLayout, key: str, config=CONFIG):
    (found,) = [value for path, value in settings_of(config, layout).items() if path[-1] == key]
    return found


def test_micro_batches_are_gradient_accumulation_where_there_are_no_stages() -> None:
    one = UniformLayout(Degrees(4), Stages(1, 8))
    assert [said(one, key) for key in ("batch_size", "gradient_accumulation_steps", "micro_batch_num")] == [2, 8, 1]
    assert [said(STAGED, key) for key in ("batch_size", "gradient_accumulation_steps", "micro_batch_num")] == [4, 1, 8]


def test_level2_does_not_go_with_a_weight_of_two_stages() -> None:
    tied = replace(CONFIG, tied_embeddings=True)
    with pytest.raises(CannotSayError, match="first and last stage read the weight of the embedding"):
        settings_of(tied, STAGED)
    assert said(replace(STAGED, optimizer_level=OptimizerLevel.LEVEL1), "gradient_accumulation_shard", tied) is False


def test_blocks_of_uneven_stages() -> None:
    layout = replace(STAGED, recompute=Recomputation(blocks=(2, 1)))
    assert said(layout, "offset") == [1, 0] and said(layout, "recompute") == [2, 1]
    assert said(layout, "pp_interleave_num") == 1 and said(layout, "pipeline_interleave") is False
    assert said(layout, "gradient_accumulation_shard") is True


def test_chunks_have_a_row_each() -> None:
    layout = replace(STAGED, stages=Stages(2, 8, 2, chunks=((2, 1), (1, 3))), recompute=Recomputation(blocks=(3, 2)))
    assert said(layout, "offset") == [[1, 0], [0, 2]] and said(layout, "pipeline_interleave") is True
    assert said(layout, "recompute") == [[2, 1], [1, 1]]


def test_whole_blocks_count_among_those_that_recompute_a_part() -> None:
    recomputation = Recomputation(blocks=(1, 0), parts=((Selection.ACTIVATION, (ALL,)),))
    assert said(replace(STAGED, recompute=recomputation), "recompute") == [1, 0]
    selected = said(replace(STAGED, recompute=recomputation), "select_recompute")
    assert selected[r"mlp\.mul"] == selected[r"mlp\.activation_func\.(silu|mul|swiglu)"] == [4, 3]
    assert len(selected) == 2 and r"self_attention\.core_attention" not in selected
    assert said(replace(STAGED, recompute=Recomputation(blocks=(ALL,))), "recompute") is True


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (replace(STAGED, optimizer_level=OptimizerLevel.LEVEL3), "levels 0 to 2"),
        (replace(STAGED, degrees=Degrees(1, 16, True)), "key-value heads must divide by model_parallel 16"),
        (replace(STAGED, degrees=Degrees(4, 1, True)), "use_seq_parallel needs model_parallel above 1"),
        (replace(STAGED, degrees=Degrees(2, 2, True, cuts_embedding=False)), "vocab_emb_dp"),
        (replace(STAGED, degrees=Degrees(1, 4, True, 4)), "ulysses_cp: 8 key-value heads"),
        (replace(STAGED, recompute=Recomputation(parts=((Selection.NORM, (ALL,)),))), "no pattern of select_recompute"),
        (
            replace(STAGED, recompute=Recomputation(marks=((frozenset(), None, None, None), (None,) * 3))),
            "first blocks",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(layout: UniformLayout, reason: str) -> None:
    with pytest.raises(CannotSayError, match=reason):
        settings_of(CONFIG, layout)


def test_gated_linear_attention_is_refused() -> None:
    config = replace(CONFIG, delta=DeltaSizes(16, 32, 128, 128), kinds=(BlockKind(linear=True),) * 7)
    with pytest.raises(CannotSayError, match="it has no network with gated linear attention or gates of attention"):
        settings_of(config, UniformLayout(Degrees(4)))
    config = replace(config, delta=None, state_space=StateSpaceSizes(128, 64, 1, 128))
    with pytest.raises(CannotSayError, match="its state-space layers are not modelled"):
        settings_of(config, UniformLayout(Degrees(4)))


def test_parts_that_mindformers_has_not_are_refused() -> None:
    config = replace(dimensions_of("deepseek_v3"), indexer=IndexerSizes(64, 128, 2048))
    with pytest.raises(CannotSayError, match="bias no scores by distance"):
        settings_of(replace(CONFIG, position="distance"), UniformLayout(Degrees(4)))
    with pytest.raises(CannotSayError, match="its indexer and sparse attention are kernels in a Morph"):
        settings_of(config, UniformLayout(Degrees(4, expert_parallel=4, expert_model_parallel=1)))


def test_a_plan_for_mindformers(tmp_path: Path, capsys) -> None:
    arguments = [
        "plan",
        "llama3_8b",
        "--num-layers",
        "2",
        "--seq-length",
        "512",
        "--device-num",
        "4",
        "--out",
        str(tmp_path),
    ]
    assert main([*arguments, "--target", "mindformers", "--max", "context_parallel=1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    file = yaml.safe_load((tmp_path / "mindformers.yaml").read_text())
    parallel = file["parallel_config"]
    assert all(parallel[key] == found[key] for key in ("data_parallel", "model_parallel"))
    assert parallel["pipeline_stage"] == found["pipeline_stages"] and found["target"] == "mindformers"
    steps = file["runner_config"]["gradient_accumulation_steps"] * parallel["micro_batch_num"]
    assert file["runner_config"]["batch_size"] * parallel["data_parallel"] * steps == 16 == found["global_batch_size"]
    assert found["free_layouts"]["step_time_s"] > 0 and found["not_written"] == []


def test_free_layouts_are_not_written_for_mindformers(tmp_path: Path, capsys) -> None:
    arguments = [
        "plan",
        "llama2_7b",
        "--num-layers",
        "2",
        "--seq-length",
        "512",
        "--device-num",
        "2",
        "--out",
        str(tmp_path),
    ]
    assert main(arguments) == 0
    assert "mindformers.yaml is not written: MindFormers cuts all blocks alike" in capsys.readouterr().out
    assert not (tmp_path / "mindformers.yaml").exists()


def test_nobody_is_sent_to_a_target_that_has_no_such_network(tmp_path: Path, capsys) -> None:
    pytest.importorskip("mindspore")
    small = ["lstm_lm", "--seq-length", "4", "--device-num", "2", "--out", str(tmp_path)]
    assert main(["plan", *small, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_written"] == []


def test_unknown_targets_are_named(tmp_path: Path, capsys) -> None:
    assert main(["plan", "llama2_7b", "--device-num", "2", "--target", "megatron", "--out", str(tmp_path)]) == 2
    assert "known are mindspore, mindformers" in capsys.readouterr().err
