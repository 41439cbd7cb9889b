"""How often the signatures agree with MindSpore's compiler: every operator, random strategies, 2 to 16 devices.

    python -m benchmarks.operators [--device-num 2 4 8 16] [--strategies 10] [--only MatMul] [--seed 0]

Every case is a network of one operator whose inputs are parameters and whose outputs are gathered again; it is compiled
for Ascend on this machine with strategies that the signature allows, with strategies that it forbids, and with none. Compared are

- accepted or rejected;
- the layout of every input (MindSpore tells it for parameters), as the ranks along which each dim is cut;
- the collectives of the operator itself: kind, reduction, ranks, element type, shape;
- the layout of the outputs: the ranks over which MindSpore gathers their dims.

Needs mindspore 2.7.1 to 2.10; exit code 1 if anything differs.
"""

import argparse
import importlib.util
import itertools
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")  # a rejected strategy is not an incident here

from benchmarks.operator_cases import CASES, Case
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiled.collectives import CompiledCollective, collectives
from ms_symtensor.bridge.compiler.compile import CompiledProgram, compile_rank
from ms_symtensor.errors import CompilerError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy, Placement, place, strategy_of
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Combine, OpView, Signature, view
from ms_symtensor.program.meanings import default_strategy
from ms_symtensor.tensor.graph import TensorType
from ms_symtensor.tensor.layout import DeviceGroup, Layout

# MindSpore reads a network's source: it has to stand in a file.
OPERATOR = """
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer
from mindspore.ops import auto_generate as gen
from mindspore.ops.operations.nn_ops import FlashAttentionScore


class Net(nn.Cell):
    def __init__(self, in_strategy, out_strategy):
        super().__init__()
        self.op = {primitive}
        if in_strategy is not None:
            self.op.shard(in_strategy, out_strategy)
"""
"""How a network of one operator begins."""

SOURCE = (
    OPERATOR
    + """\
        self.cast = ops.Cast()
{members}
    def construct(self):
        y = {call}
        return {result}
"""
)


def network(case: Case, outputs: tuple[TensorType, ...], strategy: OpStrategy | None, directory: str) -> Any:
    """The Cell of `case`; each of `outputs` goes through a ReLU that wants it whole."""
    members, call = [], case.call.replace("op(", "self.op(", 1)
    for i, tensor in reversed([*enumerate(case.inputs)]):
        call = call.replace(f"p{i}", f"self.p{i}")
        dtype = "bool_" if tensor.dtype == "bool" else tensor.dtype
        members.append(f"self.p{i} = Parameter(initializer('zeros', {tensor.shape}, ms.{dtype}), name='p{i}')")
    results = []
    for i, tensor in enumerate(outputs):
        taken = "y" if len(outputs) == 1 else f"y[{i}]"
        members.append(f"self.end{i} = ops.ReLU().shard(({(1,) * len(tensor.shape)},))")
        results.append(f"self.end{i}({taken if 'float' in tensor.dtype else f'self.cast({taken}, ms.float32)'})")
    text = SOURCE.format(
        primitive=case.primitive,
        call=call,
        result=", ".join(results) or "y",
        members="".join(f"        {m}\n" for m in members),
    )
    return cell_of(text, strategy, directory)


def cell_of(text: str, strategy: OpStrategy | None, directory: str) -> Any:
    """The Cell `Net` of the source `text`, which is written to `directory`."""
    from mindspore.nn.utils import no_init_parameters

    handle, path = tempfile.mkstemp(suffix=".py", prefix="operator_", dir=directory)
    os.close(handle)
    Path(path).write_text(text)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(path).stem] = module
    spec.loader.exec_module(module)
    with no_init_parameters():
        return module.Net(strategy and strategy.inputs, strategy and strategy.outputs)


def captured(case: Case, directory: str) -> OpView:
    """What the planner sees of the operator of `case`."""
    graph = capture(network(case, (), None, directory))
    (op,) = graph.ops
    return view(graph, op)


def allowed(op: OpView, sig: Signature, device_num: int, rng: random.Random) -> Iterator[OpStrategy]:
    """Random strategies that the signature allows, without end."""
    dims = [d for d in sig.mesh if d not in sig.fixed]
    degrees = {d: [n for n in range(1, device_num + 1) if device_num % n == 0 and sig.sizes[d] % n == 0] for d in dims}
    for _ in range(1000):
        cuts = {d: rng.choice(degrees[d]) for d in dims}
        strategy = strategy_of(sig, cuts, scatter=sig.scatter is not None and rng.random() < 0.5)
        if predicted(op, sig, strategy, device_num) is not None:
            yield strategy


def forbidden(op: OpView, sig: Signature, device_num: int, rng: random.Random) -> Iterator[OpStrategy]:
    """Random strategies of the right form that the signature forbids, without end."""
    entries = sig.entries or sig.inputs
    for _ in range(1000):
        degrees = tuple(tuple(rng.choice((1, 1, 1, 2, 4)) for _ in dims) for dims in entries)
        if math.prod(itertools.chain(*degrees)) <= 4 * device_num**2 and not undescribed(op, degrees, device_num):
            strategy = OpStrategy(degrees)
            if predicted(op, sig, strategy, device_num) is None:
                yield strategy


def undescribed(op: OpView, degrees: tuple[tuple[int, ...], ...], device_num: int) -> bool:
    """Strategies that MindSpore accepts and the signatures leave out on purpose.

    Products of two factors that are cut alike, over all devices: both are gathered before use, the second one over its rows,
    which the optimizer's cut of weights does too. Gather with a cut of the looked-up dim that is not the first: where the
    indices are cut too, the compiled program sums over the wrong ranks.
    """
    if op.type in ("MatMul", "MatMulExt"):
        return degrees[0] == degrees[1] and math.prod(degrees[0]) == device_num
    return op.type == "Gather" and op.argument(0, "axis") == 1 and degrees[0][1] > 1


def predicted(op: OpView, sig: Signature, strategy: OpStrategy, device_num: int) -> Placement | None:
    """The placement, or None where the strategy is predicted to be rejected."""
    try:
        return place(op, sig, strategy, device_num)
    except InvalidStrategyError:
        return None


def unasked(op: OpView, sig: Signature, device_num: int) -> Placement | None:
    """The placement of an operator that is given no strategy, or None where that is predicted to be rejected."""
    try:
        return place(op, sig, default_strategy(op, sig, device_num), device_num)
    except InvalidStrategyError:
        return None


def compiled(
    case: Case, op: OpView, strategy: OpStrategy | None, device_num: int, rank: int, directory: str
) -> CompiledProgram | None:
    """The compiled program, or None where MindSpore rejects the strategy."""
    try:
        return compile_rank(network(case, op.outputs, strategy, directory), device_num=device_num, rank=rank)
    except (CompilerError, ValueError, TypeError):
        return None


def differences(case: Case, op: OpView, placement: Placement | None, program: CompiledProgram | None) -> list[str]:
    """What differs between prediction and program, in words; nothing if they agree."""
    if placement is None or program is None:
        words = {True: "accepted", False: "rejected"}
        same = (placement is None) == (program is None)
        return [] if same else [f"predicted {words[placement is not None]}, MindSpore: {words[program is not None]}"]
    found = []
    for i, layout in enumerate(placement.inputs):
        if f"p{i}" in program.layout_by_name and i < len(case.inputs):
            actual = program.layout_by_name[f"p{i}"].layout
            if dim_groups(actual, program.rank) != dim_groups(layout, program.rank):
                found.append(f"input {i}: predicted {layout}, compiled {actual}")
    own: list[CompiledCollective] = []
    gathers: list[CompiledCollective] = []
    for c in collectives(program):
        (gathers if c.instance.startswith("redistribution") else own).append(c)
    expected = expected_collectives(op, placement, program.rank)
    actual_own = [(c.kind, c.reduction, c.ranks, str(c.output)) for c in own]
    if actual_own != expected:
        found.append(f"own collectives: predicted {expected}, compiled {actual_own}")
    wanted = sorted(g for layout in placement.outputs for g in dim_groups(layout, program.rank) if g)
    if not case.replaced_where_partial or placement.partial is None:
        actual_gathers = sorted(c.ranks for c in gathers)
        if actual_gathers != wanted:
            found.append(f"outputs: predicted to be cut over {wanted}, gathered over {actual_gathers}")
    return found


def expected_collectives(op: OpView, placement: Placement, rank: int) -> list[tuple[str, str, tuple[int, ...], str]]:
    """Kind, reduction, ranks and local output type of the collectives of the operator itself."""
    partial = placement.partial
    if partial is None:
        return []
    kind = "AllReduce" if partial.dim is None else "ReduceScatter"
    dtype = partial.dtype or op.outputs[partial.output].dtype
    output = TensorType(placement.outputs[partial.output].slice_shape, dtype)
    reduction = "sum" if partial.combine is Combine.MEAN else partial.combine.value
    return [(kind, reduction, partial.group.ranks(rank), str(output))]


def dim_groups(layout: Layout, rank: int) -> list[tuple[int, ...]]:
    """Per dim, the ranks that hold the slices along it (with the same other slices); empty where it is whole."""
    axes = [len(layout.device_matrix) - 1 - a for a in layout.tensor_map]
    return [
        DeviceGroup(layout.device_matrix, (axis,)).ranks(rank) if layout.cut(dim) > 1 else ()
        for dim, axis in enumerate(axes)
    ]


@dataclass
class Tally:
    """Counts of one case."""

    allowed: int = 0
    forbidden: int = 0
    unasked: int = 0
    different: int = 0


def check(
    case: Case, device_nums: list[int], strategies: int, rng: random.Random, directory: str
) -> tuple[Tally, list[str]]:
    """Compare `strategies` allowed and as many forbidden strategies per number of devices; counts and differences."""
    op = captured(case, directory)
    sig = signature(op)
    tally, messages = Tally(), []
    for device_num in device_nums:
        picked = dict.fromkeys(itertools.islice(allowed(op, sig, device_num, rng), strategies))
        refused = (
            {}
            if case.ignores_strategy or case.accepts_more
            else dict.fromkeys(itertools.islice(forbidden(op, sig, device_num, rng), strategies))
        )
        tally.allowed += len(picked)
        tally.forbidden += len(refused)
        for strategy in (*picked, *refused):
            rank = rng.randrange(device_num)
            placement = predicted(op, sig, strategy, device_num)
            program = compiled(case, op, strategy, device_num, rank, directory)
            found = differences(case, op, placement, program)
            tally.different += bool(found)
            messages += [f"{op.type} {strategy} on {device_num} devices, rank {rank}: {text}" for text in found]
        tally.unasked += 1
        rank = rng.randrange(device_num)
        program = compiled(case, op, None, device_num, rank, directory)
        found = differences(case, op, unasked(op, sig, device_num), program)
        tally.different += bool(found)
        messages += [f"{op.type} without a strategy on {device_num} devices, rank {rank}: {text}" for text in found]
    return tally, messages


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device-num", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument(
        "--strategies", type=int, default=10, help="allowed and forbidden strategies per case and device_num"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    total = different = 0
    with tempfile.TemporaryDirectory() as directory:
        for name, case in CASES.items():
            if arguments.only not in name:
                continue
            rng = random.Random(f"{arguments.seed} {name}")
            tally, messages = check(case, arguments.device_num, arguments.strategies, rng, directory)
            total += tally.allowed + tally.forbidden + tally.unasked
            different += tally.different
            print(
                f"{name:34s} allowed {tally.allowed:4d}  forbidden {tally.forbidden:4d}  different {tally.different:4d}",
                flush=True,
            )
            for message in messages:
                print(f"    {message}")
    print(f"{total - different} of {total} agree ({(total - different) / max(total, 1):.2%})")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
