"""What it is worth to cut layers, weights and sequences together where samples are fewer than devices.

    python -m benchmarks.few_samples [--models llama3_70b …]

Every row is a network of the zoo, full depth, and its plan; beside it the best plans that do without pipeline stages, without
tensor parallelism, and without context parallelism, as multiples of the plan's step.
"""

import argparse
import sys
from collections.abc import Sequence

from tqdm import tqdm

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.models import planned, resolve
from ms_symtensor.report.text import seconds, table
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.strategy.plan import Plan

CLUSTER = "atlas_800t_a2"

CASES = (
    ("llama3_70b", 512, 32, 32768),
    ("llama3_70b", 384, 12, 8192),
    ("qwen1_5_72b", 4096, 256, 32768),
    ("qwen1_5_72b", 2048, 64, 16384),
    ("qwen3_32b", 2048, 32, 8192),
    ("llama3_8b", 256, 4, 16384),
    ("llama2_13b", 4096, 256, 16384),
    ("codellama_34b", 48, 3, 32768),
    ("internlm2_20b", 1024, 32, 32768),
    ("qwen3_30b_a3b", 512, 8, 2048),
    ("bert_large", 128, 2, 512),
)
"""Networks, devices, samples of a step and tokens of a sample."""

WITHOUT = ("pipeline_stages", "model_parallel", "context_parallel")

Case = tuple[str, int, int, int]


def best(case: Case, pins: Sequence[tuple[str, object]] = ()) -> Plan | None:
    """The plan for `case` under `pins`, None where nothing fits."""
    name, device_num, batch, seq_length = case
    cluster, model = load(CLUSTER), resolve(name, batch, seq_length, {})
    limit_B = int(cluster.device.hbm_usable_B)
    request = Request(cluster, device_num, batch, seq_length, limit_B, name, limits=limits_of(pins))
    try:
        return planned(model, request)[0]
    except InfeasibleError:
        return None


def row(case: Case) -> tuple[str, ...]:
    """What is printed of one case."""
    name, device_num, batch, seq_length = case
    plan = best(case)
    if plan is None:
        return (name, str(device_num), str(batch), str(seq_length), "nothing fits")
    others = [best(case, [(degree, 1)]) for degree in WITHOUT]
    ratios = (
        "-" if one is None else f"{one.prediction.step_time_s / plan.prediction.step_time_s:.2f}" for one in others
    )
    degrees = (plan.pipeline_stages, plan.data_parallel, plan.model_parallel, plan.context_parallel)
    step, gap = seconds(plan.prediction.step_time_s), f"{100 * plan.search.optimality_gap:.2f} %"
    return (name, str(device_num), str(batch), str(seq_length), step, gap, *map(str, degrees), *ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", help="only these")
    chosen = parser.parse_args()
    cases = [case for case in CASES if not chosen.models or case[0] in chosen.models]
    rows = [row(case) for case in tqdm(cases, disable=not sys.stderr.isatty())]
    head = (
        "model", "devices", "batch", "tokens", "step", "gap", "pp", "dp", "tp", "cp", "without pp", "without tp", "without cp"
    )  # fmt: skip
    print(table(rows, head, right=tuple(range(1, len(head)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
