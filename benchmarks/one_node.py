"""The whole loop on one node, in one process: import, graph, search, verify all blocks; seconds of each and peak memory.

    python -m benchmarks.one_node [llama2_7b] [--device-num 8] [--batch 16] [--capture]

With `--capture` the graph is MindSpore's own of the network's Cell, as of a network that is not in the zoo.
"""

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from model_zoo import PUBLISHED
from ms_symtensor.allocator import restart_tuned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="llama2_7b", choices=PUBLISHED)
    parser.add_argument("--device-num", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--capture", action="store_true", help="have MindSpore write the graph")
    chosen = parser.parse_args()
    restart_tuned()  # as `symtensor verify` does
    print("                 wall      CPU")
    _timed("import", _import)
    from ms_symtensor.bridge.apply.load_network import load_network
    from ms_symtensor.bridge.capture.capture import capture
    from ms_symtensor.bridge.judge.verify import verify
    from ms_symtensor.cluster.load import load
    from ms_symtensor.models import planned, resolve
    from ms_symtensor.search.constraints.request import Request

    model = _timed("graph", lambda: resolve(chosen.model, chosen.batch, None, {}))
    if chosen.capture:
        cell, inputs = load_network(model.source)
        captured = _timed("capture", lambda: capture(cell, *inputs))
        assert len(captured.ops) == len(model.graph.ops), "the captured graph is another one"
    cluster = load("atlas_800t_a2")
    request = Request(
        cluster, chosen.device_num, chosen.batch, model.seq_length, int(cluster.device.hbm_usable_B), model.name, model.source
    )  # fmt: skip
    plan, graph = _timed("search", lambda: planned(model, request))
    if plan.pipeline is not None:
        print(f"the plan has {plan.pipeline_stages} stages: give a smaller network", file=sys.stderr)
        return 2
    verdict = _timed("verify", lambda: verify(plan, graph))
    peak_MiB = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"all     {_age_s():11.2f} s {time.process_time():6.2f} s, {peak_MiB:.0f} MiB")
    print("accepted, synchronised and equal" if verdict.passed else f"not as predicted: {verdict.reason}")
    return 0 if verdict.passed else 1


def _age_s() -> float:
    """Seconds since this process began: proc(5), field 22 of /proc/self/stat."""
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - began


def _import() -> None:
    from ms_symtensor.bridge.compiler.host import import_mindspore
    from ms_symtensor.bridge.judge import verify

    assert import_mindspore() and verify


def _timed(name: str, work: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    print(f"{name:8s}{time.perf_counter() - wall:11.2f} s {time.process_time() - cpu:6.2f} s", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
