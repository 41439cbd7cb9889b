"""The networks of PaSE, and ResNet-50, predicted: our plans beside data parallelism and the strategies that people wrote by hand.

    python -m benchmarks.pase [NETWORK …] [--device-num 4 8 16 32 64] [--verify 8] [--prove 4]

PaSE (Elango, IPDPS 2021, arXiv 2407.04001) compares on 4 to 64 GPUs, with batches of 128 images and 64 sentences on all of them.
By hand:

- images: "one weird trick" (Krizhevsky, arXiv 1404.5997): convolutions are cut by samples, the classifier by its outputs;
- LSTM: its layers on pipeline stages, samples over the rest (Wu et al., arXiv 1609.08144);
- translation: samples over one dim of a mesh, heads, inner widths and words over the other (Mesh-TensorFlow, arXiv 1811.02084),
  the fastest of all splits.

Data parallelism is plain: every device has all weights, and nothing is recomputed. `--verify N`: MindSpore compiles a rank of
every plan on N devices. `--prove N`: the same plans of the networks at reduced sizes, on N local processes beside one.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.ratios import shown
from benchmarks.results import markdown
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import SymTensorError
from ms_symtensor.models import Model, planned, resolve
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request, free_B
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

CLUSTER = "atlas_800t_a2"
NETWORKS = ("inception_v3", "resnet50", "lstm_lm", "transformer_wmt")
DEVICE_NUMS = (4, 8, 16, 32, 64)
PLAIN: Mapping[str, str] = {"optimizer_level": "0", "recompute": "none"}
ONE: Mapping[str, str] = {"pipeline_stages": "1", "micro_batch_num": "1"}
CUT_BY_SAMPLES = {
    "inception_v3": ("*features*", "*/MatMul-op0"),
    "resnet50": ("*features*", "*/MatMul-op0"),
    "lstm_lm": ("*embedding*", "*layers*", "*head*"),
    "transformer_wmt": ("*encoder*", "*decoder*", "*head*"),
}
REDUCED: Mapping[str, tuple[str, ...]] = {
    "inception_v3": ("batch_size=64", "image_size=107", "classes=40"),
    "resnet50": ("batch_size=64", "image_size=64", "classes=40"),
    "lstm_lm": ("batch_size=16", "hidden_size=64", "vocab_size=256", "seq_length=5"),
    "transformer_wmt": (
        "batch_size=16", "hidden_size=64", "num_layers=2", "num_heads=8", "intermediate_size=128", "vocab_size=256",
        "seq_length=16",
    ),
}  # fmt: skip
"""Sizes for proofs; images as large, and batches, that every BatchNorm has some dozens of values a device and channel."""
CLASSES = 8
"""Divides the 1,000 classes of an image; more devices cut the samples too."""
Found = tuple[Plan, Graph]


@dataclass(frozen=True)
class Compared:
    """A network on so many devices: what is found by search, by data parallelism and by hand (None: nothing fits)."""

    network: str
    device_num: int
    ours: Found
    data: Found | None
    hand: Found | None


def data_parallel(network: str, device_num: int) -> dict[str, str]:
    """The pins of plain data parallelism."""
    return {**PLAIN, **ONE, "data_parallel": str(device_num), **dict.fromkeys(CUT_BY_SAMPLES[network], "dp,tp")}


def by_hand(network: str, device_num: int) -> Iterator[dict[str, str]]:
    """The pins of the strategies by hand, one for each split."""
    if network == "lstm_lm":
        samples = dict.fromkeys(CUT_BY_SAMPLES[network], "dp,tp")
        yield {**PLAIN, "pipeline_stages": "2", "data_parallel": str(device_num // 2), **samples}
    elif network == "transformer_wmt":
        for words in (2**i for i in range(1, device_num.bit_length())):
            columns, rows = f"m/{device_num // words},n/{words}", f"m/{device_num // words},k/{words}"
            cuts = {f"*.{name}.matmul": columns for name in ("query", "key", "value", "up")}
            yield {**PLAIN, **ONE, **cuts, "*.output.matmul": rows, "*.down.matmul": rows, "*head.matmul": columns}
    else:
        classes = min(CLASSES, device_num)
        by_samples = {"data_parallel": str(device_num), "*features*": "dp,tp"}
        yield {**PLAIN, **ONE, **by_samples, "*/MatMul-op0": f"m/{device_num // classes},n/{classes}"}


def found(model: Model, device_num: int, pins: Mapping[str, str]) -> Found | None:
    """The plan within `pins`; None where there is none."""
    cluster = load(CLUSTER)
    request = Request(
        cluster, device_num, model.global_batch_size, model.seq_length, free_B(cluster), model.name, model.source,
        limits_of(pins.items()),
    )  # fmt: skip
    try:
        return planned(model, request)
    except SymTensorError as error:
        print(f"{model.name} on {device_num}, {dict(pins)}: {error}", file=sys.stderr)
        return None


def compared(model: Model, network: str, device_num: int, pins: Mapping[str, str] = MappingProxyType({})) -> Compared:
    """What is found on so many devices, ours within `pins`."""
    ours = found(model, device_num, pins)
    assert ours is not None
    hands = [one for pins in by_hand(network, device_num) if (one := found(model, device_num, pins)) is not None]
    hand = min(hands, key=lambda one: one[0].prediction.step_time_s, default=None)
    return Compared(network, device_num, ours, found(model, device_num, data_parallel(network, device_num)), hand)


def row(one: Compared) -> tuple[str, ...]:
    """A line of the table."""
    ours_s = one.ours[0].prediction.step_time_s

    def ratio(other: Found | None) -> str:
        return "none fits" if other is None else f"{other[0].prediction.step_time_s / ours_s:.2f}"

    data_s = "" if one.data is None else f"{1e3 * one.data[0].prediction.step_time_s:.1f} ms"
    return (
        one.network, str(one.device_num), data_s, f"{1e3 * ours_s:.1f} ms", ratio(one.data), ratio(one.hand),
        shown(one.ours[0]),
    )  # fmt: skip


def verified(found: Found) -> tuple[str, ...]:
    """What MindSpore's compiler says: ranks, collectives as predicted and compiled, and whether all is as predicted."""
    from ms_symtensor.bridge.judge.verify import verify
    from ms_symtensor.bridge.judge.verify_stages import verify_stages

    plan, graph = found
    verdicts = (verify(plan, graph),) if plan.pipeline is None else verify_stages(plan, graph)
    pairs = [one.comparison for one in verdicts if one.comparison is not None]
    wrong = "; ".join(one.reason or "differs" for one in verdicts if not one.passed)
    return (
        str(len(verdicts)), str(sum(one.predicted_collectives for one in pairs)),
        str(sum(one.compiled_collectives for one in pairs)), wrong[:200] or "verified",
    )  # fmt: skip


def proved(found: Found) -> tuple[str, ...]:
    """The plan, and the largest relative errors of the loss and of gradients beside one process."""
    from ms_symtensor.bridge.proof.prove import prove_plan

    proof = prove_plan(*found)
    wrong = "" if proof.equal else f"NOT EQUAL: {proof.worst.name}"
    return shown(found[0]), f"{proof.loss_rel_error:.0e}", f"{proof.worst.error:.0e}", wrong


def reduced(of: Compared) -> Compared:
    """The plans of the network at small sizes, in float32; ours with the degrees that it has at the published ones."""
    model = resolve(of.network, options={"compute_dtype": "float32"}, dims=REDUCED[of.network])
    plan = of.ours[0]
    names = ("data_parallel", "model_parallel", "pipeline_stages", "micro_batch_num")
    pins = {name: str(getattr(plan, name)) for name in names}
    pins["optimizer_level"] = str(int(plan.settings.optimizer_level))
    return compared(model, of.network, of.device_num, pins)


def checks(of: Sequence[Compared], check: Callable[[Found], tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """A line of a table for every plan; equal plans of a network are checked once."""
    for one in of:
        known: list[tuple[Plan, tuple[str, ...]]] = []
        for name, plan in (("ours", one.ours), ("data parallelism", one.data), ("by hand", one.hand)):
            if plan is None:
                continue
            of_plan = (
                said for other, said in known if (other.stages, other.pipeline) == (plan[0].stages, plan[0].pipeline)
            )
            said = next(of_plan, None) or check(plan)
            known.append((plan[0], said))
            line = (one.network, str(one.device_num), name, *said)
            print(*line, file=sys.stderr, flush=True)
            yield line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar=" | ".join(NETWORKS))
    parser.add_argument("--device-num", type=int, nargs="+", default=DEVICE_NUMS)
    parser.add_argument("--verify", type=int, help="have MindSpore compile the plans on so many devices")
    parser.add_argument("--prove", type=int, help="run the plans of reduced networks on so many processes")
    chosen = parser.parse_args()
    of: list[Compared] = []
    for network in chosen.networks:
        model = resolve(network)
        of += [compared(model, network, number) for number in chosen.device_num]
    columns = (
        "network", "devices", "data parallelism", "ours", "data parallelism / ours", "by hand / ours", "our plan"
    )  # fmt: skip
    print(markdown(columns, map(row, of)), flush=True)
    ended = True
    if chosen.verify:
        heads = ("network", "devices", "plan", "ranks", "collectives predicted", "compiled", "")
        lines = list(checks([one for one in of if one.device_num == chosen.verify], verified))
        print("\n" + markdown(heads, lines), flush=True)
        ended = all(line[-1] == "verified" for line in lines)
    if chosen.prove:
        heads = ("network", "processes", "plan", "degrees", "error of the loss", "of gradients", "")
        lines = list(checks([reduced(one) for one in of if one.device_num == chosen.prove], proved))
        print("\n" + markdown(heads, lines))
        ended = ended and not any(line[-1] for line in lines)
    return int(not ended)


if __name__ == "__main__":
    sys.exit(main())
