"""Networks of functions are planned such that MindSpore compiles what was predicted."""

import re
from pathlib import Path

import pytest

from ms_symtensor.cli import main

NETWORKS = Path(__file__).parents[1] / "functional_networks.py"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("vision", marks=pytest.mark.matrix),
        pytest.param("unet", marks=pytest.mark.matrix),
        "decoder",
        "shared",
        pytest.param("gated", marks=pytest.mark.matrix),
        "stranger",
        "in_place",
        pytest.param("constants", marks=pytest.mark.matrix),
    ],
)
def test_plans_compile_as_predicted(name, tmp_path, capsys):
    out = str(tmp_path / name)
    assert main(["plan", f"{NETWORKS}:{name}", "--device-num", "8", "--out", out]) == 0
    assert ("are functional" in capsys.readouterr().out) == (name != "shared")
    assert main(["verify", out]) == 0
    assert "equal in kind, ranks and bytes" in capsys.readouterr().out


def test_a_reshape_of_the_first_weight_with_others_behind_it_has_no_stages(tmp_path, capsys):
    asked = ["plan", f"{NETWORKS}:reshaped_token", "--device-num", "2", "--out", str(tmp_path / "plan")]
    assert main(asked) == 0
    report = capsys.readouterr().out
    assert "one stage: Reshape (Reshape) reads the first weight, and has one primitive with" in report
    assert main([*asked, "--fix", "pipeline_stages=2"]) == 2
    assert "give the former a primitive of its cell" in capsys.readouterr().err


BLOCKS = {
    "vision": "blocks.0 … 1",
    "token_by_primitive": "blocks.0 … 1",
    "translator": "decoder.0 … 1",
    "wrapped": "network.layers.0 … 1",
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", BLOCKS)
def test_plans_in_stages_compile_as_predicted(name, tmp_path, capsys):
    out = str(tmp_path / name)
    asked = ["plan", f"{NETWORKS}:{name}", "--device-num", "8", "--fix", "pipeline_stages=2"]
    asked += [] if name == "wrapped" else ["--fix", "micro_batch_num=2"]
    assert main([*asked, "--out", out]) == 0
    report = capsys.readouterr().out
    assert "pipeline_stages     2" in report
    assert f"{BLOCKS[name]} (2 blocks alike)" in report
    assert main(["verify", out]) == 0
    assert "all stages verified" in capsys.readouterr().out


@pytest.mark.matrix
def test_any_batch_may_be_asked_for(tmp_path, capsys):
    asked = [
        "plan",
        f"{NETWORKS}:translator",
        "--device-num",
        "8",
        "--global-batch-size",
        "64",
        "--fix",
        "micro_batch_num=4",
    ]
    assert main([*asked, "--fix", "pipeline_stages=1", "--out", str(tmp_path / "plan")]) == 0
    assert "global batch 64" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "plan")]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "plan"), "--why-not", "mb=2"]) == 0
    assert capsys.readouterr().out.startswith("mb=2")


def test_gradients_do_not_add_up_where_mindspore_rejects_it(tmp_path, capsys):
    asked = [
        "plan",
        f"{NETWORKS}:vision",
        "--device-num",
        "8",
        "--fix",
        "micro_batch_num=2",
        "--out",
        str(tmp_path / "plan"),
    ]
    assert main([*asked, "--fix", "pipeline_stages=1"]) == 2
    assert (
        "BroadcastTo-op0 (BroadcastTo), which reads the first weight, is of no micro-batch" in capsys.readouterr().err
    )


def test_samples_that_need_each_other_are_one_batch(tmp_path, capsys):
    asked = ["plan", f"{NETWORKS}:contrast", "--device-num", "8", "--out", str(tmp_path / "plan")]
    assert main(asked) == 0
    assert "one batch: at Default/MatMul-op" in capsys.readouterr().out
    assert main([*asked[:-1], str(tmp_path / "other"), "--fix", "micro_batch_num=2"]) == 2
    assert "contrast cannot be split into micro-batches: blocks.0 is like no other block" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_what_is_not_linear_in_sums_over_samples_is_one_batch(tmp_path, capsys):
    asked = ["plan", f"{NETWORKS}:balanced", "--device-num", "4", "--fix", "micro_batch_num=2", "--out", str(tmp_path)]
    assert main(asked) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "(Mul) is not linear in what is summed over the samples" in line


def test_a_number_that_goes_from_block_to_block_keeps_one_stage(tmp_path, capsys):
    asked = ["plan", f"{NETWORKS}:chosen", "--device-num", "4", "--out", str(tmp_path / "plan")]
    assert main(asked) == 0
    assert "one stage: Default/" in capsys.readouterr().out
    assert main([*asked[:-1], str(tmp_path / "other"), "--fix", "pipeline_stages=2"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "goes from block to block: MindSpore receives a scalar as a number" in line


def test_what_mindspore_does_not_send_keeps_one_stage(tmp_path, capsys):
    asked = [
        "plan",
        f"{NETWORKS}:decoder",
        "--device-num",
        "8",
        "--fix",
        "pipeline_stages=2",
        "--out",
        str(tmp_path / "plan"),
    ]
    assert main(asked) == 2
    assert "embedding.weight is read before and behind blocks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("miscompiled", "TransposeExtView.*gives another result"),
        ("added", "Addmm.*gives another result; use ops.addmm"),
        ("renamed", "InplaceAddExt.*changes in place what .*ReLU-op0 made, which is read afterwards by its old name"),
        ("whole_view", "MindSpore rejects NarrowView where 8 devices do not divide.*use a slice"),
        ("filled", "MaskedFillScalar.*gives another result; use ops.masked_fill"),
        ("chosen_number", "Select.*takes no number.*ops.masked_fill takes a number"),
        ("new", "NewZeros.*gives another result; use ops.zeros"),
        ("scattered", "Scatter.*gives another result; write the sum of one-hot vectors"),
    ],
)
def test_what_mindspore_cannot_cut_rightly_is_refused_in_a_line(name, said, tmp_path, capsys):
    out = tmp_path / name
    assert main(["plan", f"{NETWORKS}:{name}", "--device-num", "8", "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("symtensor: error: ")
    assert re.search(said, line)
    assert not out.exists()
