"""Search time and memory: one process per search, graph given, everything cold; medians and ratios of one run.

    python -m benchmarks.search_time [--repeat 5]

The first row is the yardstick, all others are shown as ratios to it as well: deeper networks, more devices, other networks.
"""

import argparse
import json
import statistics
import subprocess
import sys

CASES = (
    ("llama2_7b", 32, 8),
    ("llama2_7b", 64, 8),
    ("llama2_7b", 128, 8),
    ("llama2_7b", 32, 16),
    ("llama2_7b", 32, 64),
    ("llama2_13b", 40, 8),
    ("llama3_8b", 32, 8),
    ("gpt2_xl", 48, 8),
    ("bert_large", 24, 8),
)

ONE = """
import json, resource, sys, time
from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.plan import plan
model, layers, device_num = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = dimensions_of(model, num_layers=layers, batch_size=2 * device_num)
graph, cluster = build_graph(config), load("atlas_800t_a2")
wall, cpu = time.perf_counter(), time.process_time()
try:
    plan(graph, cluster, device_num=device_num, global_batch_size=config.batch_size, seq_length=config.seq_length,
         memory_limit_B=1 << 40)
except InfeasibleError:
    pass
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps([wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def measure(model: str, layers: int, device_num: int, repeat: int) -> tuple[float, float, float]:
    """Medians of wall seconds, CPU seconds and peak MiB of a process that searches once."""
    rows = []
    for _ in range(repeat):
        command = [sys.executable, "-c", ONE, model, str(layers), str(device_num)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    wall, cpu, memory = (statistics.median(column) for column in zip(*rows, strict=True))
    return wall, cpu, memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    chosen = parser.parse_args()
    first = None
    print(f"{'model':12s} layers devices   search     CPU  memory   ratio of search, of memory")
    for model, layers, device_num in CASES:
        wall, cpu, memory = measure(model, layers, device_num, chosen.repeat)
        first = first or (wall, memory)
        print(
            f"{model:12s} {layers:6d} {device_num:7d}  {wall:5.2f} s  {cpu:4.2f} s  {memory:3.0f} MiB"
            f"  {wall / first[0]:5.2f}  {memory / first[1]:5.2f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
