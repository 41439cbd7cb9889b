"""What arguments of MindSpeed-LLM say of a layout, which layouts they cannot say, and what a launch script is read as."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.mindspeed_arguments import layouts
from model_zoo import dimensions_of
from model_zoo.config import IndexerSizes, TransformerConfig
from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.runtime import runtime_of
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.targets.exporter import CannotSayError
from ms_symtensor.targets.mindspeed.dimensions import dimensions
from ms_symtensor.targets.mindspeed.options import layout_options
from ms_symtensor.targets.mindspeed.reading import described
from ms_symtensor.targets.mindspeed.script import options_in, script
from ms_symtensor.uniform.layout import (
    ALL,
    FULL_RECOMPUTATION,
    Degrees,
    Recomputation,
    Selection,
    Stages,
    UniformLayout,
    first_blocks,
)
from ms_symtensor.uniform.prices import Prices

ROOT = Path(__file__).parents[2]
CONFIG = dimensions_of("llama3_8b", num_layers=8, batch_size=64)
STAGED = UniformLayout(Degrees(2, 2, True), Stages(2, 8), optimizer_level=OptimizerLevel.LEVEL1)


def test_batch_and_degrees() -> None:
    said = layout_options(CONFIG, STAGED)
    assert said["micro-batch-size"] == "4" and said["global-batch-size"] == "64"
    assert said["tensor-model-parallel-size"] == said["pipeline-model-parallel-size"] == "2"
    assert "sequence-parallel" in said and "use-distributed-optimizer" in said
    assert not {"recompute-granularity", "context-parallel-size", "num-layer-list", "swap-optimizer"} & {*said}


def test_blocks_of_stages_and_chunks() -> None:
    uneven = replace(STAGED, stages=Stages(2, 8, layers=(5, 3)))
    assert layout_options(CONFIG, uneven)["num-layer-list"] == "5,3"
    chunks = layout_options(CONFIG, replace(STAGED, stages=Stages(2, 8, 2)))
    assert chunks["num-layers-per-virtual-pipeline-stage"] == "2" and "num-layer-list" not in chunks


def test_recomputation_is_counted_in_every_chunk() -> None:
    chunks = replace(STAGED, stages=Stages(2, 8, 2))
    again = first_blocks(chunks.stages, 8, 1, frozenset({Selection.ACTIVATION}))
    said = layout_options(CONFIG, replace(chunks, recompute=again))
    assert (said["recompute-method"], said["recompute-num-layers"]) == ("block", "1")
    assert "recompute-activation-function" in said
    whole = layout_options(CONFIG, replace(STAGED, recompute=FULL_RECOMPUTATION))
    assert whole["recompute-granularity"] == "full" and whole["recompute-num-layers"] == "4"
    core = replace(STAGED, recompute=Recomputation(parts=((Selection.ATTENTION_CORE, (ALL,)),)))
    assert layout_options(CONFIG, core)["recompute-granularity"] == "selective"


def test_what_is_hidden_is_said() -> None:
    said = layout_options(CONFIG, STAGED, "gradients,weights")
    assert "overlap-grad-reduce" in said and "overlap-param-gather" in said
    with pytest.raises(CannotSayError, match="overlap-param-gather needs"):
        layout_options(CONFIG, STAGED, "weights")
    with pytest.raises(CannotSayError, match="expert has no option"):
        layout_options(CONFIG, STAGED, "expert")


def test_experts_whole_or_cut() -> None:
    config = dimensions_of("mixtral_8x7b", num_layers=2, batch_size=16)
    cut = layout_options(config, UniformLayout(Degrees(4, 2, True, 1, 4, 2)))
    assert (cut["expert-model-parallel-size"], cut["expert-tensor-parallel-size"]) == ("4", "2")
    whole = layout_options(config, UniformLayout(Degrees(4, 2, True, 1, 8, 1)))
    assert (whole["expert-model-parallel-size"], whole["expert-tensor-parallel-size"]) == ("8", "1")
    said = dimensions(config)
    assert said["num-experts"] == "8" and said["moe-expert-capacity-factor"] == "1.1"


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (replace(STAGED, optimizer_level=OptimizerLevel.LEVEL3), "optimizer_level is 0 or 1"),
        (replace(STAGED, optimizer_level=OptimizerLevel.NONE, swap_optimizer=True), "swap-optimizer needs"),
        (replace(STAGED, degrees=Degrees(1, 16, True)), "must divide by tensor-model-parallel-size 16"),
        (replace(STAGED, degrees=Degrees(1, 4, True, 4)), "ulysses_cp_algo: 8 key-value heads"),
        (replace(STAGED, stages=Stages(2, 7, 2)), "7 micro-batches must divide by 2 stages"),
        (replace(STAGED, stages=Stages(2, 8, 3)), "must divide evenly"),
        (replace(STAGED, recompute=Recomputation(blocks=(2, 1))), "as many of each"),
        (replace(STAGED, recompute=Recomputation(parts=((Selection.NORM, (ALL,)),))), "recompute one part"),
        (replace(STAGED, stages=Stages(2, 8, 2, scheduler="seqpipe")), "its schedule is 1f1b"),
    ],
)
def test_what_cannot_be_said_is_refused(layout: UniformLayout, reason: str) -> None:
    with pytest.raises(CannotSayError, match=reason):
        layout_options(CONFIG, layout)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (dimensions_of("bert_large", batch_size=8), "it trains decoders"),
        (dimensions_of("qwen_7b_lora", batch_size=8), "adapters"),
        (dimensions_of("mixtral_8x7b", batch_size=8, experts="dropless"), "room for all tokens"),
        (replace(CONFIG, activation="geglu"), "gate through GELU"),
        (replace(CONFIG, branch_norm="both"), "norms behind attention"),
        (replace(dimensions_of("llama3_8b"), attention_gate=True), "gated linear attention and gates of attention"),
        (replace(dimensions_of("deepseek_v3"), indexer=IndexerSizes(64, 128, 2048)), "an indexer of sparse attention"),
        (replace(CONFIG, position="distance"), "biases by distance"),
        (replace(CONFIG, normed_head=True), "norms of embeddings and of the head's table"),
    ],
)
def test_networks_without_options_are_refused(config: TransformerConfig, reason: str) -> None:
    with pytest.raises(CannotSayError, match=reason):
        layout_options(config, UniformLayout(Degrees(8)))


@pytest.mark.parametrize("number", [0, 7, 13])
def test_what_a_script_says_has_the_price_of_the_plan(number: int) -> None:
    priced_as_written(number)


@pytest.mark.matrix
@pytest.mark.parametrize("number", range(40))
def test_what_every_script_says_has_the_price_of_the_plan(number: int) -> None:
    priced_as_written(number)


def priced_as_written(number: int) -> None:
    config, layout, hide = layouts()[number]
    text = script(dimensions(config), layout_options(config, layout, hide), 8, 8)
    small = replace(config, batch_size=1, seq_length=512 if config.seq_length != 512 else 1024)
    read, found, hidden = described(small, options_in(text, "mindspeed.sh"), layout.device_num)
    assert hidden == hide and read == config
    runtime = runtime_of("mindspeed", hide)
    request = Request(
        load("atlas_800t_a2"), layout.device_num, config.batch_size, config.seq_length, 1 << 40, "", runtime=runtime
    )
    prices = Prices(config, request)
    ours, theirs = prices.of(layout), prices.of(found)
    assert theirs.step_time_s == pytest.approx(ours.step_time_s, rel=1e-3)
    assert theirs.peak_memory_B == pytest.approx(ours.peak_memory_B, rel=1e-3)


@pytest.mark.matrix
def test_arguments_are_what_megatron_reads() -> None:
    command = [sys.executable, "-m", "benchmarks.mindspeed_arguments"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "40 of 40 sets of arguments as planned" in done.stdout


HAND_WRITTEN = """
#!/bin/bash
TP=2; PP=2
NPUS=8
DIST="--nproc_per_node $NPUS"   # of torchrun
GPT_ARGS="
    --tensor-model-parallel-size ${TP} \\
    --pipeline-model-parallel-size $PP \\
    --sequence-parallel \\
    --num-layers 32 --hidden-size 4096 --seq-length 2048 \\
    --micro-batch-size 1 --global-batch-size 16 \\
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
"
torchrun $DIST pretrain_gpt.py $GPT_ARGS --use-distributed-optimizer --overlap-grad-reduce | tee logs/train.log
"""


def test_a_script_of_somebody_else_is_priced(tmp_path: Path, capsys) -> None:
    (tmp_path / "train.sh").write_text(HAND_WRITTEN)
    arguments = ["estimate", "llama2_7b", "--device-num", "8", "--arguments", str(tmp_path / "train.sh"), "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["data_parallel"], found["model_parallel"], found["pipeline_stages"]) == (2, 2, 2)
    assert found["seq_length"] == 2048 and found["global_batch_size"] == 16 and found["micro_batch_num"] == 8
    assert "gradients" in found["hidden_s"] or found["step_time_s"] > 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "--sequence-parallel",
            "--sequence-parallel --schedules-method dualpipev",
            "--schedules-method is not modelled",
        ),
        ("--num-layers 32", "--num-layers 30", "--num-layers is 30, but llama2_7b has 32"),
        ("TP=2", "TP=3", "do not divide 8 devices"),
        ("--global-batch-size 16", "--global-batch-size 15", "15 does not divide"),
        ("--micro-batch-size 1", "--micro-batch-size x", "give a whole number"),
        ('GPT_ARGS="', "GPT_ARGS='", "is no launch script"),
        ("--num-layers 32", "", "has no option --num-layers"),
    ],
)
def test_scripts_that_are_refused(tmp_path: Path, capsys, old: str, new: str, reason: str) -> None:
    (tmp_path / "train.sh").write_text(HAND_WRITTEN.replace(old, new, 1))
    assert main(["estimate", "llama2_7b", "--device-num", "8", "--arguments", str(tmp_path / "train.sh")]) == 2
    error = capsys.readouterr().err
    assert reason in error and len(error) <= 450


def test_a_plan_for_mindspeed(tmp_path: Path, capsys) -> None:
    small = ["--num-layers", "2", "--seq-length", "512", "--device-num", "4"]
    arguments = ["plan", "llama3_8b", *small, "--target", "mindspeed", "--out", str(tmp_path), "--json"]
    assert main(arguments) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["target"] == "mindspeed" and plan["not_written"] == []
    path = tmp_path / "mindspeed.sh"
    said = options_in(path.read_text(), "mindspeed.sh")
    assert int(said["tensor-model-parallel-size"]) == plan["model_parallel"]
    for given in (["llama3_8b", *small[:2], "--device-num", "4", "--arguments", str(path)], ["--plan", str(tmp_path)]):
        assert main(["estimate", *given, "--json"]) == 0
        again = json.loads(capsys.readouterr().out)
        assert again["step_time_s"] == pytest.approx(plan["step_time_s"], rel=1e-3)
        assert again["peak_memory_B"] == pytest.approx(plan["peak_memory_B"], rel=1e-3)
    assert main([*arguments, "--runtime", "mindspore_graph"]) == 2
    assert "leave --runtime out" in capsys.readouterr().err
