"""What gradients hold in memory, as MindSpore compiles them."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import mindspore as ms
import pytest
from mindspore.common.initializer import Zero

from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.judge.audit import audit
from ms_symtensor.bridge.judge.verify import verify
from ms_symtensor.cluster.load import load
from ms_symtensor.models import planned, resolve
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from tests.bridge import gradient_networks as networks

CONFIGS = Path(__file__).parents[2] / "data/configs"


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (partial(networks.Experts, "MatMulExt"), (32, 8, 16, 64)),
        (partial(networks.Experts, "BatchMatMul"), (32, 8, 16, 64)),
        (networks.Rows, (32, 4, 64)),
        (networks.Projected, (512, 4, 64)),
        (partial(networks.Rated, None), (64, 16)),
        (lambda: networks.Rated(ms.ops.Gather().shard(((4, 1), (1, 1)))), (64, 16)),
        (networks.Sliced, (64, 128)),
        (networks.Functions, (512, 8)),
        (networks.Spread, (512, 8)),
        (networks.Shared, (512, 8)),
        (networks.Clipped, (4096, 8)),
    ],
    ids=[
        "experts",
        "experts with BatchMatMul",
        "rows",
        "linear",
        "embedding",
        "gather",
        "slice",
        "functions",
        "mean",
        "share",
        "clipped",
    ],
)
def test_peaks_are_those_of_the_compiled_program(make, shape):
    with ascend_compiler(4, 1):
        x = ms.Tensor(shape=shape, dtype=ms.float32, init=Zero())
        found = audit(make(), x, device_num=4, rank=1).verdict
    assert found.passed, found
    compared = found.comparison
    assert compared.predicted_activations_B == pytest.approx(compared.compiled_activations_B, rel=0.08), compared


def test_a_gradient_that_branches_is_told_with_what_to_write():
    found = audit(networks.Multiplied(), ms.Tensor(shape=(512, 8), dtype=ms.float32, init=Zero()), device_num=4).verdict
    assert not found.accepted
    assert "gradient of ProdExt branches on a tensor, and cannot be read: write ops.ReduceProd" in found.reason


def test_sums_of_gradients_without_a_scope_are_of_the_backward_pass():
    """A chunked recurrence that is recomputed has such: they hold nothing while the forward pass runs."""
    dims = {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
        "vocab_size": 128,
    }  # fmt: skip
    given = [f"{key}={value}" for key, value in dims.items()]
    model = resolve(str(CONFIGS / "qwen3_next_80b_a3b.json"), 2, 256, dims=given)
    limits = limits_of([("recompute", "full")])
    plan, graph = planned(model, Request(load("atlas_800t_a2"), 2, 2, 256, 1 << 40, limits=limits))
    compared = verify(replace(plan, source=model.source), graph).comparison
    assert compared.predicted_activations_B == pytest.approx(compared.compiled_activations_B, rel=0.01), compared
