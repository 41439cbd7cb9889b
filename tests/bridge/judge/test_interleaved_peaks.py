"""What stages with several model chunks keep, with selective recomputation too, against MindSpore's compiled programs."""

from pathlib import Path

import pytest

from ms_symtensor.bridge.judge.verify_stages import verify_stages
from ms_symtensor.cli import main
from ms_symtensor.strategy.file import load, load_graph

PINS = {"pipeline_stages": 2, "pp_interleave_num": 2, "micro_batch_num": 4, "data_parallel": 2}


@pytest.mark.matrix
def test_peaks_are_those_of_the_compiled_program(tmp_path):
    fixed = [word for name, number in PINS.items() for word in ("--fix", f"{name}={number}")]
    size = ["--num-layers", "9", "--seq-length", "1024", "--global-batch-size", "8", "--device-num", "4"]
    assert main(["plan", "llama2_7b", *size, *fixed, "--memory-limit", "14", "--out", str(tmp_path)]) == 0
    plan = load(tmp_path)
    assert any(stage.settings.recompute for stage in plan.stages)
    found = verify_stages(plan, load_graph(tmp_path))
    assert len(found) == 2 and all(verdict.passed for verdict in found)
    for verdict in found:
        predicted_B, compiled_B = verdict.comparison.predicted_activations_B, verdict.comparison.compiled_activations_B
        assert abs(predicted_B / compiled_B - 1) <= 0.01


@pytest.mark.matrix
@pytest.mark.parametrize("recompute, memory", [("2", "58"), ("full", "58"), ("select", "8.2")])
def test_recomputed_blocks_cast_their_weights_again(tmp_path, recompute, memory):
    """Without optimizer sharding; of such blocks the casts of every micro-batch would be most of what waits."""
    pins = {
        "pipeline_stages": 2,
        "pp_interleave_num": 2,
        "micro_batch_num": 2,
        "model_parallel": 2,
        "recompute": recompute,
    }
    fixed = [word for name, number in pins.items() for word in ("--fix", f"{name}={number}")]
    size = ["--num-layers", "4", "--seq-length", "4096", "--global-batch-size", "4", "--device-num", "4"]
    assert main(["plan", "llama2_7b", *size, *fixed, "--memory-limit", memory, "--out", str(tmp_path)]) == 0
    plan = load(tmp_path)
    assert any(stage.settings.recompute for stage in plan.stages)
    for verdict in verify_stages(plan, load_graph(tmp_path)):
        predicted_B, compiled_B = verdict.comparison.predicted_activations_B, verdict.comparison.compiled_activations_B
        assert verdict.passed and abs(predicted_B / compiled_B - 1) <= 0.05


PLAIN = """
import mindspore
from mindspore import nn, ops
from mindspore.common.initializer import Zero


class Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.relu, self.add = ops.ReLU(), ops.Add()

    def construct(self, x):
        return self.add(x, self.down(self.relu(self.up(x))))


class Network(nn.Cell):
    def __init__(self, width=128):
        super().__init__()
        self.first, self.head, self.loss = nn.Dense(32, width), nn.Dense(width, 64), nn.MSELoss()
        self.blocks = nn.CellList([Block(width) for _ in range(4)])

    def construct(self, x, y):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.loss(self.head(x), y)


def network():
    return Network(), [mindspore.Tensor(shape=(256, n), dtype=mindspore.float32, init=Zero()) for n in (32, 64)]
"""


@pytest.mark.matrix
@pytest.mark.parametrize("recompute", ["none", "1", "full"])
def test_weights_that_are_read_as_they_are_stored_are_copied_for_every_micro_batch(tmp_path, recompute):
    """Half of what such stages of float32 keep. Recomputed blocks have no copies."""
    (tmp_path / "plain.py").write_text(PLAIN)
    pins = {"pipeline_stages": 2, "pp_interleave_num": 2, "micro_batch_num": 4, "recompute": recompute}
    fixed = [word for name, number in pins.items() for word in ("--fix", f"{name}={number}")]
    network, out = f"{tmp_path / 'plain.py'}:network", str(tmp_path / "plan")
    assert main(["plan", network, "--device-num", "4", *fixed, "--out", out]) == 0
    plan = load(out)
    found = verify_stages(plan, load_graph(out))
    assert len(found) == 2 and all(verdict.passed for verdict in found)
    for verdict in found:
        predicted_B, compiled_B = verdict.comparison.predicted_activations_B, verdict.comparison.compiled_activations_B
        assert abs(predicted_B / compiled_B - 1) <= 0.05


CONFIGS = Path(__file__).parents[2] / "data" / "configs"
NARROW = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 8192}
TIED = {"num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 6}
EXPERTS = {"moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("llama_3_2_3b", TIED),
        ("deepseek_v2_lite", {**EXPERTS, **LATENT, "num_hidden_layers": 8, "first_k_dense_replace": 3}),
        ("glm_4_5_air", {**EXPERTS, **TIED, "first_k_dense_replace": 1}),
    ],
    ids=("tied table", "dense blocks before experts", "second token"),
)
def test_chunks_of_unlike_blocks_and_tables_of_two_stages(name, dims, tmp_path):
    """What the first and the last stage read is cast for every micro-batch by the one that receives it; so is what two heads
    read.
    """
    size = ["--seq-length", "1024", "--device-num", "4", "--global-batch-size", "8"]
    size += [word for key, number in {**NARROW, **dims}.items() for word in ("--dim", f"{key}={number}")]
    fixed = [word for key, number in PINS.items() for word in ("--fix", f"{key}={number}")]
    assert main(["plan", str(CONFIGS / f"{name}.json"), *size, *fixed, "--out", str(tmp_path)]) == 0
    found = verify_stages(load(tmp_path), load_graph(tmp_path))
    assert len(found) == 2 and all(verdict.passed for verdict in found)
    for verdict in found:
        predicted_B, compiled_B = verdict.comparison.predicted_activations_B, verdict.comparison.compiled_activations_B
        assert abs(predicted_B / compiled_B - 1) <= 0.05
