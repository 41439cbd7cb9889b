"""Whether operators that are cut as the signatures allow compute, and differentiate to, what one process does.

    python -m benchmarks.operator_proofs [--device-num 2] [--only MatMul …] [--seconds 300] [--out operator_proofs.jsonl]

Every case of `operator_cases` is a network of one operator: its inputs of floats are sigmoids of parameters, and its loss is the
sum of the results times parameters of their shape, whose gradients are the results, number by number. For every dim that a
planner may cut there is one strategy, that dim in two (MindSpore's own cut where it takes no strategy), and one more where the
partial sum is scattered.
Each is compiled for Ascend and run by as many processes as devices; loss and gradients are compared with one process.

Each result is a line of JSON in `--out`; a case that stands there is not run again. Random operators (Dropout) cannot be
compared; what MindSpore's CPU does not compute is listed. Exit code 1 if something is not equal.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

import numpy

from benchmarks.operator_cases import CASES, Case
from benchmarks.operators import OPERATOR, captured, cell_of, predicted
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.capture.scopes import fresh_scopes
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.proof.launch import Processes, started
from ms_symtensor.bridge.proof.prove import Proof, Request, prove_network
from ms_symtensor.bridge.proof.trial import References
from ms_symtensor.errors import SymTensorError
from ms_symtensor.ops.placement import OpStrategy, strategy_of
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import OpView
from ms_symtensor.tensor.graph import TensorType

Result = dict[str, Any]

RANDOM = ("Dropout",)
INDICES = 2
"""Integers are below this: what every case can index, and takes for true and false."""

SOURCE = (
    OPERATOR
    + """\
        self.cast, self.add = ops.Cast(), ops.Add().shard(((), ()))
{members}
    def construct(self, {arguments}):
{lines}
        return loss
"""
)


def network(case: Case, outputs: Sequence[TensorType], strategy: OpStrategy | None, directory: str) -> Any:
    """The Cell of `case`. Its inputs are those of the case's that hold no floats, in order."""
    members, lines = [], []
    for i, tensor in enumerate(case.inputs):
        if "float" in tensor.dtype:
            members.append(
                f"self.p{i} = Parameter(initializer('zeros', {tensor.shape}, ms.{tensor.dtype}), name='p{i}')"
            )
            members.append(f"self.begin{i} = ops.Sigmoid().shard(({_whole(tensor)},))")
            lines.append(f"p{i} = self.begin{i}(self.p{i})")
    lines.append(f"y = {case.call.replace('op(', 'self.op(', 1)}")
    for i, tensor in enumerate(outputs):
        members.append(f"self.w{i} = Parameter(initializer('zeros', {tensor.shape}, ms.float32), name='w{i}')")
        members.append(f"self.mul{i} = ops.Mul().shard(({_whole(tensor)}, {_whole(tensor)}))")
        members.append(f"self.sum{i} = ops.ReduceSum().shard(({_whole(tensor)},))")
        weighted = f"self.mul{i}(self.cast({'y' if len(outputs) == 1 else f'y[{i}]'}, ms.float32), self.w{i})"
        total = f"self.sum{i}({weighted})" if tensor.shape else weighted
        lines.append(f"loss = {total}" if i == 0 else f"loss = self.add(loss, {total})")
    text = SOURCE.format(
        primitive=case.primitive,
        members="".join(f"        {member}\n" for member in members),
        arguments=", ".join(f"p{i}" for i, tensor in enumerate(case.inputs) if "float" not in tensor.dtype),
        lines="\n".join(f"        {line}" for line in lines),
    )
    return cell_of(text, strategy, directory)


def _whole(tensor: TensorType) -> tuple[int, ...]:
    return (1,) * len(tensor.shape)


def inputs_of(case: Case) -> list[Any]:
    """Seeded values for the inputs of its network."""
    from mindspore import Tensor

    random = numpy.random.default_rng(0)
    kinds = [tensor for tensor in case.inputs if "float" not in tensor.dtype]
    return [Tensor(random.integers(0, INDICES, kind.shape).astype(kind.dtype)) for kind in kinds]


def strategies(case: Case, op: OpView, device_num: int) -> Iterator[OpStrategy | None]:
    """One strategy for every dim that a planner may cut, and one more where the partial sum is scattered."""
    if case.ignores_strategy:
        yield None
        return
    sig = signature(op)
    found = {}
    for dim, scatter in itertools.product(sig.cuttable, (False, True) if sig.scatter else (False,)):
        strategy = strategy_of(sig, {dim: 2}, scatter)
        if sig.sizes[dim] % 2 == 0 and predicted(op, sig, strategy, device_num) is not None:
            found[strategy] = None
    yield from found


def results(names: Sequence[str], device_num: int, end: float) -> Iterator[Result]:
    """Those of the cases, until `end` (of time.monotonic); processes serve until one of them fails."""
    references = References()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        processes: Processes | None = None
        for name in names:
            if time.monotonic() > end:
                return
            case = CASES[name]
            op = captured(case, directory)
            for strategy in strategies(case, op, device_num):
                result = {"case": name, "strategy": str(strategy), "device_num": device_num}
                if processes is None:
                    stack.close()
                    folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
                    processes = stack.enter_context(started(Path(folder), device_num))
                try:
                    proof = prove(
                        case, op, strategy, device_num, Request(processes=processes, references=references), directory
                    )
                except SymTensorError as error:
                    processes = None
                    yield {**result, "error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
                    continue
                wrong = {d.name: d.error for d in (*proof.losses, *proof.parameters) if not d.equal}
                yield {**result, "equal": proof.equal, "wrong": wrong}


def prove(
    case: Case, op: OpView, strategy: OpStrategy | None, device_num: int, request: Request, directory: str
) -> Proof:
    cell, inputs = network(case, op.outputs, strategy, directory), inputs_of(case)
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    return prove_network(cell, inputs, graph, device_num, ParallelConfig(), request, identity=str(case))


def line(result: Result) -> str:
    """One result for people."""
    if "error" in result:
        state = result["error"]
    else:
        state = (
            "equal" if result["equal"] else f"NOT EQUAL {', '.join(f'{n} {e:.1e}' for n, e in result['wrong'].items())}"
        )
    return f"{result['case']:28s} {result['strategy']} on {result['device_num']}: {state}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device-num", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name begins with one of these")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many seconds")
    parser.add_argument("--out", type=Path, default=Path("operator_proofs.jsonl"))
    arguments = parser.parse_args()
    known = [json.loads(text) for text in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    there = {(result["case"], result["device_num"]) for result in known}
    names = [
        name for name in CASES
        if name not in RANDOM and name.startswith(tuple(arguments.only)) and (name, arguments.device_num) not in there
    ]  # fmt: skip
    for result in results(names, arguments.device_num, time.monotonic() + arguments.seconds):
        print(line(result), flush=True)
        with arguments.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        known.append(result)
    proved = [result for result in known if "error" not in result]
    equal = sum(result["equal"] for result in proved)
    print(f"{equal} of {len(proved)} equal, {len(known) - len(proved)} could not be run")
    return 0 if equal == len(proved) else 1


if __name__ == "__main__":
    sys.exit(main())
