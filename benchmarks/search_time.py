"""Search time and memory: one process per search, graph given, everything cold; medians and ratios of one run.

    python -m benchmarks.search_time [--repeat 5] [--models llama3_70b]

The first row is the yardstick, all others are shown as ratios to it as well: deeper networks, more devices, other networks.
`loops`: the search's CPU seconds in times of those of a fixed loop of plain Python in the same process; they stay the same
where a machine's speed does not. With `stages` 1, one stage and the whole batch are searched alone, whatever memory that needs;
`any`: pipeline stages, micro-batches and meshes too.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence

from tqdm import tqdm

CASES = (
    ("llama2_7b", 32, 8, 16, "1"),
    ("llama2_7b", 64, 8, 16, "1"),
    ("llama2_7b", 128, 8, 16, "1"),
    ("llama2_7b", 32, 64, 128, "1"),
    ("llama2_13b", 40, 8, 16, "1"),
    ("llama3_8b", 32, 8, 16, "1"),
    ("gpt2_xl", 48, 8, 16, "1"),
    ("bert_large", 24, 8, 16, "1"),
    ("llama2_7b", 32, 8, 16, "any"),
    ("mixtral_8x7b", 32, 64, 128, "any"),
    ("qwen1_5_72b", 80, 64, 128, "any"),
    ("llama3_70b", 32, 2048, 2048, "any"),
    ("llama3_70b", 80, 2048, 2048, "any"),
    ("llama3_70b", 128, 2048, 2048, "any"),
    ("llama3_70b", 80, 4096, 4096, "any"),
    ("llama3_70b", 80, 16384, 16384, "any"),
    ("deepseek_v3", 61, 1024, 4096, "any"),
    ("deepseek_v3", 61, 4096, 8192, "any"),
    ("deepseek_v3", 61, 4096, 16384, "any"),
)

ONE = """
import json, resource, sys, time
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.models import planned, resolve
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request
name, layers, device_num, batch, stages = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
model, cluster = resolve(name, batch, None, {"num_layers": layers}), load("atlas_800t_a2")
limits = Limits({}, {"pipeline_stages": 1, "micro_batch_num": 1} if stages == "1" else {})
limit_B = 1 << 40 if stages == "1" else int(cluster.device.hbm_usable_B)
wall, cpu = time.perf_counter(), time.process_time()
try:
    planned(model, Request(cluster, device_num, batch, model.seq_length, limit_B, limits=limits))
except InfeasibleError:
    pass
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
peak_MiB = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
start, table = time.process_time(), {}
for number in range(1_000_000):
    table[number & 1023, number >> 16] = str(number)
print(json.dumps([wall, cpu, peak_MiB, cpu / (time.process_time() - start)]))
"""


Case = tuple[str, int, int, int, str]


def measured(cases: Sequence[Case], repeat: int) -> dict[Case, list[tuple[float, float, float, float]]]:
    """Wall seconds, CPU seconds, peak MiB and loops of processes that search once, in turns: a machine has slow hours."""
    rows: dict[Case, list[tuple[float, float, float, float]]] = {case: [] for case in cases}
    with tqdm(total=repeat * len(cases), disable=not sys.stderr.isatty()) as bar:
        for case in (*cases,) * repeat:
            command = [sys.executable, "-c", ONE, *map(str, case)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            rows[case].append(tuple(json.loads(printed)))
            bar.update()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--models", nargs="*", help="only these")
    chosen = parser.parse_args()
    first = None
    rows = measured([case for case in CASES if not chosen.models or case[0] in chosen.models], chosen.repeat)
    print(f"{'model':13s} layers devices  batch stages   search     CPU  loops  memory   ratio of search, of memory")
    for (model, layers, device_num, batch, stages), found in rows.items():
        wall, cpu, memory, loops = (statistics.median(column) for column in zip(*found, strict=True))
        first = first or (wall, memory)
        print(
            f"{model:13s} {layers:6d} {device_num:7d} {batch:6d} {stages:>6s}  {wall:5.2f} s  {cpu:4.2f} s  {loops:5.1f}"
            f"  {memory:3.0f} MiB  {wall / first[0]:5.2f}  {memory / first[1]:5.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
