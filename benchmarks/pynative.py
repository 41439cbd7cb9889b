"""MindFormers' PyNative mode: predicted collectives, units and activations against traces, and the mirror of its checks.

`python -m benchmarks.pynative` (needs `make pynative`): random degrees that the mirror accepts, at full width, few layers, each
traced through MindFormers' own code; and a grid of degrees on 1,024 ranks through its classes.
"""

import argparse
import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

import ms_symtensor.targets.mindformers_pynative as target
from ms_symtensor.bridge.pynative.audit import StageTrace, stage_trace
from ms_symtensor.bridge.pynative.interpreter import ask
from ms_symtensor.targets.mindformers_pynative.calls import Calls, Unit
from ms_symtensor.targets.mindformers_pynative.checks import degree_refusal, refusal
from ms_symtensor.targets.mindformers_pynative.degrees import degrees_of
from ms_symtensor.targets.mindformers_pynative.kept import kept_B
from ms_symtensor.targets.mindformers_pynative.layers import EXCHANGES
from ms_symtensor.targets.mindformers_pynative.parameters import units_of
from ms_symtensor.targets.mindformers_pynative.predicted import calls_of, context_calls_of
from ms_symtensor.targets.mindformers_pynative.shape import shape_of

FILES = Path(target.__file__).parent / "files"
MODELS = {
    "qwen3": FILES / "qwen3_32b.yaml",
    "deepseek_v3": FILES / "deepseek3_671b.yaml",
    "deepseek_v4": FILES / "deepseek4_flash.yaml",
}
Config = dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """One combination."""

    degrees: dict[str, Any]
    device_num: int
    equal: bool
    """Collectives and units, every stage."""
    kept_ratio: float
    """Predicted activations to those traced, of the stage that is furthest off."""
    why: str = ""


def combinations(model: str, count: int, seed: int = 0) -> Iterator[tuple[Config, int]]:
    """Random files that the mirror of the checks accepts."""
    draw = random.Random(seed)
    base = yaml.safe_load(MODELS[model].read_text())
    while count:
        config, devices = copy.deepcopy(base), draw.choice((8, 16, 32, 64, 128))
        {"qwen3": _qwen, "deepseek_v3": _deepseek, "deepseek_v4": _compressed}[model](config, draw)
        _any(config, devices, draw)
        if model == "deepseek_v4":
            config["parallelism"]["context_parallel"] = 1
        if model != "qwen3":
            _keep(config, draw)
        if not refusal(shape_of(config["model"]), degrees_of(config, devices)):
            count -= 1
            yield config, devices


def _any(config: Config, devices: int, draw: random.Random) -> None:
    given, model = config["parallelism"], config["model"]
    given["tensor_parallel"] = draw.choice((1, 2, 4, 8))
    given["sequence_parallel"] = given["tensor_parallel"] > 1
    given["context_parallel"] = draw.choice((1, 1, 2, 4))
    given["context_parallel_method"] = draw.choice(("colossal", "ulysses", "hybrid"))
    if given["context_parallel_method"] == "hybrid":
        given["ulysses_degree_in_cp"] = 2
    model["use_attn_mask_compression"] = given["context_parallel"] > 1
    model["hidden_act"] = draw.choice(("silu", "fusedswiglu"))
    given["data_parallel_shard"] = draw.choice((-1, -1, 2, 4))
    given["dense_fsdp_shard_size"] = draw.choice((None, None, 2))
    given["reshard_after_forward_policy"] = draw.choice(("default", "always", "never"))
    local = draw.choice((1, 2))
    config["training"] |= {"local_batch_size": local, "global_batch_size": devices * local * 2}
    layers = model["num_hidden_layers"] + model.get("num_nextn_predict_layers", 0)
    config["recompute"] = draw.choice((
        {"mode": "None"},
        {"mode": "full", "full_recompute_layer": [f"0-{draw.randrange(layers)}"]},
        {"mode": "select", "select_module": {"self_attention": [f"0-{draw.randrange(layers)}"]}},
        {"mode": "select", "select_module": {"mlp": [f"0-{draw.randrange(layers)}"]}},
    ))  # fmt: skip


def _qwen(config: Config, draw: random.Random) -> None:
    config["model"]["num_hidden_layers"] = draw.choice((2, 3, 4))


def _deepseek(config: Config, draw: random.Random) -> None:
    given, model = config["parallelism"], config["model"]
    model |= {"num_hidden_layers": 8, "first_k_dense_replace": draw.choice((1, 2, 3))}
    model["num_nextn_predict_layers"] = draw.choice((0, 1))
    model["moe_router_load_balancing_type"] = draw.choice(("none", "seq_aux_loss"))
    if model["moe_router_load_balancing_type"] == "none":
        model["moe_aux_loss_coeff"] = 0.0
    given["expert_parallel"] = draw.choice((1, 2, 4, 8, 16))
    given["expert_parallel_use_safe_tokens"] = draw.choice((True, True, False))
    given["pipeline_parallel"] = draw.choice((1, 1, 2, 4))
    given["pipeline_parallel_interleave_num"] = draw.choice((1, 1, 2)) if given["pipeline_parallel"] > 1 else 1


def _compressed(config: Config, draw: random.Random) -> None:
    _deepseek(config, draw)
    model = config["model"]
    del model["first_k_dense_replace"]
    layers = model["num_hidden_layers"] = draw.choice((4, 8))
    model["compress_ratios"] = [draw.choice((0, 4, 128)) for _ in range(layers + model["num_nextn_predict_layers"])]
    model["csa_dense_mode"] = draw.choice((False, False, True))
    model["enable_hyper_connections"] = draw.choice((True, True, False))
    model["num_hash_layers"] = draw.choice((0, 2))
    model["index_topk"] = draw.choice((256, 512, 2048))


def _keep(config: Config, draw: random.Random) -> None:
    """What experts received is kept of some layers, recomputed or not."""
    slots = draw.choice(((), (), EXCHANGES[:1], EXCHANGES[1:], EXCHANGES))
    if slots and config["recompute"]["mode"] != "None":
        last = draw.randrange(config["model"]["num_hidden_layers"])
        config["recompute"]["exclude_op"] = {name: [f"0-{last}"] for name in slots}


def compared(config: Config, devices: int, found: dict[str, Any]) -> Compared:
    """A trace beside what is predicted."""
    if "refused" in found:
        return Compared(config["parallelism"], devices, False, 0.0, found["refused"][:200])
    shape, degrees = shape_of(config["model"]), degrees_of(config, devices)
    worst, why = 1.0, ""
    for one in found["stages"]:
        traced = stage_trace(one, config)
        if calls_of(shape, degrees, traced.stage) != traced.calls:
            why = why or f"stage {traced.stage}: collectives"
        if context_calls_of(shape, degrees, traced.stage) != _contexts(traced):
            why = why or f"stage {traced.stage}: collectives of context parallelism"
        if _units(traced.units) != _units(units_of(shape, degrees, traced.stage)):
            why = why or f"stage {traced.stage}: units"
        ratio = kept_B(shape, degrees, traced.stage) / traced.kept_B
        worst = max(worst, ratio, key=lambda value: abs(value - 1))
    return Compared(config["parallelism"] | {"recompute": config["recompute"]}, devices, not why, worst, why)


def _contexts(traced: StageTrace) -> Calls:
    found: Calls = Counter()
    for one in traced.modelled:
        if one.by == "context_parallel":
            found[one.call] += one.count // traced.micro_batches
    return found


def _units(units: tuple[Unit, ...]) -> Counter[Any]:
    """Units without their names: the order of their parameters is the network's."""
    return Counter((tuple(sorted(u.parameters)), u.shards, u.replicas, u.reshards) for u in units if u.parameters)


def traced(model: str, count: int, seed: int = 0) -> list[Compared]:
    """`count` random combinations of a model, traced by one process."""
    chosen = list(combinations(model, count, seed))
    requests = [{"config": config, "device_num": devices} for config, devices in chosen]
    found = ask({"task": "traces", "requests": requests}, timeout_s=3600)["found"]
    return [compared(config, devices, one) for (config, devices), one in zip(chosen, found, strict=True)]


def grid() -> list[dict[str, Any]]:
    """Degrees on 1,024 ranks, right and wrong."""
    return [
        {
            "tensor_parallel": tensor,
            "sequence_parallel": tensor > 1,
            "pipeline_parallel": pipeline,
            "context_parallel": context,
            "expert_parallel": expert,
            "data_parallel_shard": shard,
        }
        for tensor in (1, 2, 4, 8, 16, 3)
        for pipeline in (1, 2, 4, 8, 16)
        for context in (1, 2, 4, 8)
        for expert in (1, 2, 4, 8, 16, 32, 64)
        for shard in (-1, 2, 8, 32)
    ]


def disagreements() -> tuple[int, list[dict[str, Any]]]:
    """How many degrees were checked, and those of which the mirror and MindFormers' classes say different things."""
    chosen = grid()
    said = ask({"task": "check", "degrees": chosen, "device_num": 1024})["said"]
    mirrored = [degree_refusal(degrees_of({"parallelism": one}, 1024)) for one in chosen]
    return len(chosen), [one for one, a, b in zip(chosen, said, mirrored, strict=True) if bool(a) != bool(b)]


def main() -> None:
    """Print both, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="combinations of each model")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    checked, wrong = disagreements()
    found = {model: traced(model, chosen.count, chosen.seed) for model in MODELS}
    print(json.dumps({
        "checked": checked,
        "disagreements": wrong,
        "models": {
            model: {
                "combinations": len(rows),
                "equal": sum(row.equal for row in rows),
                "kept_ratio_least": min(row.kept_ratio for row in rows),
                "kept_ratio_most": max(row.kept_ratio for row in rows),
                "differ": [asdict(row) for row in rows if not row.equal or abs(row.kept_ratio - 1) > 0.05],
            }
            for model, rows in found.items()
        },
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
