"""Whether micro-batches train the loss of the whole batch: losses that count tokens, on one stage, in stages, interleaved.

    python -m benchmarks.micro_losses [--losses sum_over_sum …] [--cases accumulated …]

Each small network of tests/bridge/proof/masked_networks.py is planned for four devices in four micro-batches, in the first of
which nothing counts, and in each further one more of it; MindSpore compiles the plan for Ascend (`verify`), and its loss and
gradients on local processes are compared with one process that takes the whole batch (`prove`). What `plan` refuses is printed
with its reason. Exit code 1 if something that is planned and no mean of micro-batch means differs.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from ms_symtensor.bridge.judge.verify_stages import verify_stages
from ms_symtensor.bridge.proof.launch import started
from ms_symtensor.bridge.proof.prove import Request, prove_plan
from ms_symtensor.cli import main as symtensor
from ms_symtensor.errors import SymTensorError
from ms_symtensor.strategy.file import load, load_graph
from ms_symtensor.strategy.plan import MicroBatchLoss

NETWORKS = Path(__file__).parents[1] / "tests/bridge/proof/masked_networks.py"
LOSSES = (
    "sum_over_sum", "epsilon", "at_least_one", "clamped", "of_mint", "means", "reciprocal", "normalised", "same_count",
    "penalised", "total", "static", "mean", "ignore_index", "smoothed", "shifted", "weighed_classes",
    "two_counts",
)  # fmt: skip
CASES = {
    "accumulated": ("pipeline_stages=1",),
    "stages": ("pipeline_stages=2", "pp_interleave_num=1"),
    "interleaved": ("pipeline_stages=2", "pp_interleave_num=2"),
}
DEVICES, MICRO_BATCHES = 4, 4


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--losses", nargs="+", default=LOSSES, choices=LOSSES)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    chosen = parser.parse_args(arguments)
    right = True
    print(
        "| loss | case | in micro-batches | collectives | loss off | gradients off |\n| --- | --- | --- | --- | --- | --- |"
    )
    for row, fine in rows(chosen.losses, chosen.cases):
        print(f"| {' | '.join(row)} |", flush=True)
        right &= fine
    return 0 if right else 1


def rows(losses: Sequence[str], cases: Sequence[str]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The cells of a row for every loss and case, and whether it is as it should be."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        processes = stack.enter_context(started(folder, DEVICES))
        for name in losses:
            for case in cases:
                try:
                    yield _row(name, case, folder / f"{name}_{case}", Request(processes=processes))
                except SymTensorError as error:
                    yield (name, case, f"FAILED {' '.join(str(error).split())}", "", "", ""), False


def _row(name: str, case: str, folder: Path, request: Request) -> tuple[tuple[str, ...], bool]:
    pins = [f"--fix={pin}" for pin in (*CASES[case], f"micro_batch_num={MICRO_BATCHES}")]
    errors = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(errors):
        code = symtensor(["plan", f"{NETWORKS}:{name}", "--device-num", str(DEVICES), "--out", str(folder), *pins])
    if code:
        return (name, case, f"refused: {errors.getvalue().strip().rpartition('error: ')[2]}", "", "", ""), True
    plan, graph = load(folder), load_graph(folder)
    verdicts = verify_stages(plan, graph)
    proof = prove_plan(plan, graph, request)
    assert plan.loss is not None
    agreed = all(one.passed for one in verdicts)
    figures = f"{proof.loss_rel_error:.1e}", f"{proof.worst.error:.1e}"
    fine = agreed and (proof.equal or plan.loss is MicroBatchLoss.MEAN_OF_MEANS)
    return (name, case, plan.loss.value, "equal" if agreed else "NOT VERIFIED", *figures), fine


if __name__ == "__main__":
    sys.exit(main())
