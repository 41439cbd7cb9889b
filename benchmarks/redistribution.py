"""How often the predicted redistribution equals the one that MindSpore's compiler inserts, on random pairs of layouts.

    python -m benchmarks.redistribution [--pairs 500] [--fan-outs 60] [--seed 0]

Every pair is a chain parameter -> ReLU (layout A) -> [Reshape ->] Tanh (layout B) -> sum of a training network that is
compiled for Ascend on this machine; everything between the two operators, and between their gradients, is compared:
kinds, ranks, local shapes, slice offsets. A pair that is predicted to be impossible counts as equal if MindSpore
rejects it (for at least one rank). Fan-outs have one producer and three consumers; their collectives are compared.
Needs mindspore 2.7.1 to 2.10; exit code 1 if anything differs.
"""

import argparse
import math
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ["MS_DEV_PRECOMPILE_ONLY"] = "1"  # stop cleanly after the last front-end pass; read once by MindSpore
os.environ.setdefault("GLOG_v", "4")

from benchmarks.redistribution_gradients import fan_out
from ms_symtensor.bridge.compiler.host import ascend_compiler, cell_graph_executor
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.program import COLLECTIVES
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from ms_symtensor.tensor.redistribution import Step, redistribute
from ms_symtensor.tensor.redistribution_groups import is_feasible, position

DEVICE_NUMS = (2, 4, 8, 16, 24, 32, 40, 48, 56, 64)
CONSUMERS = ("Tanh", "Sigmoid", "Sqrt")  # their gradients take (own output, incoming gradient): so they can be found
SPLITS = ("Split", "SplitWithSize")  # the gradient of Concat is one or the other, by version

Case = tuple[Layout, tuple[Layout, ...]]  # producer, consumers
Seen = tuple[Any, ...]  # kind, local output shape, ranks, slice offsets


def random_case(device_num: int, consumers: int, reshape: bool, rng: random.Random) -> Case:
    """Random layouts of 1 to 4 dims that ReLU and the consumers accept; with `reshape`, consumers see another shape."""
    while True:
        shape = tuple(rng.choice((1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 96, 128)) for _ in range(rng.randint(1, 4)))
        target = random_factors(math.prod(shape), rng.randint(1, 4), rng) if reshape else shape
        if math.prod(shape) > 1 << 22 or (reshape and target == shape):
            continue
        source = random_layout(device_num, shape, rng)
        targets = [random_layout(device_num, target, rng) for _ in range(consumers)]
        if source is not None and None not in targets:
            return source, tuple(layout for layout in targets if layout is not None)


def random_layout(device_num: int, shape: tuple[int, ...], rng: random.Random) -> Layout | None:
    """Half of them as a plain strategy gives it (an axis per dim, copies on the minor axis), half of any kind."""
    if rng.random() < 0.5:
        matrix = random_factors(device_num, len(shape) + 1, rng)
        tensor_map = tuple(range(len(shape), 0, -1))
    else:
        matrix = random_factors(device_num, rng.randint(1, 4), rng)
        axes = [*range(len(matrix)), *[-1] * len(shape)]
        rng.shuffle(axes)
        tensor_map = tuple(axes[: len(shape)])
    layout = Layout(matrix, tensor_map, shape)
    axis_groups = (DeviceGroup(matrix, (axis,)) for axis in range(len(matrix)))
    divides = all(n % cut == 0 for n, cut in zip(shape, layout.cuts, strict=True))
    return layout if divides and all(map(is_feasible, (layout.copies, *axis_groups))) else None


def random_factors(number: int, count: int, rng: random.Random) -> tuple[int, ...]:
    factors, prime = [1] * count, 2
    while number > 1:
        while number % prime == 0:
            factors[rng.randrange(count)] *= prime
            number //= prime
        prime += 1
    return tuple(factors)


def make_network(cases: Sequence[Case]) -> Any:
    """A cell (loss, gradients) with one independent chain per case."""
    import mindspore as ms
    from mindspore import Parameter, ParameterTuple, nn, ops
    from mindspore.common.initializer import initializer
    from mindspore.nn.utils import no_init_parameters
    from mindspore.parallel import Layout as NamedLayout

    def sharded(primitive: Any, layout: Layout) -> Any:
        rank = len(layout.shape)
        if layout.tensor_map == tuple(range(rank, 0, -1)) and len(layout.device_matrix) == rank + 1:
            return primitive.shard((layout.cuts,))
        names = tuple(f"axis{i}" for i in range(len(layout.device_matrix)))
        dims = tuple("None" if axis < 0 else names[-1 - axis] for axis in layout.tensor_map)
        return primitive.shard((NamedLayout(layout.device_matrix, names)(*dims),))

    class Chain(nn.Cell):
        def __init__(self, number: int, source: Layout, targets: tuple[Layout, ...]) -> None:
            super().__init__()
            self.weight = Parameter(initializer("normal", source.shape, ms.float32), name=f"weight{number}")
            self.source = sharded(ops.ReLU(), source)
            self.shape = None if targets[0].shape == source.shape else targets[0].shape
            self.count = len(targets)
            for index, target in enumerate(targets):
                setattr(self, f"target{index}", sharded(getattr(ops, CONSUMERS[index])(), target))
            self.sum = ops.ReduceSum().shard(((1,) * len(targets[0].shape),))

        def construct(self) -> Any:
            y = self.source(self.weight)
            if self.shape is not None:
                y = ops.reshape(y, self.shape)
            loss = self.sum(self.target0(y))
            if self.count == 3:
                loss = loss + self.sum(self.target1(y)) + self.sum(self.target2(y))
            return loss

    class Network(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.chains = nn.CellList([Chain(number, *case) for number, case in enumerate(cases)])

        def construct(self, x: Any) -> Any:
            for chain in self.chains:
                x = x + chain()
            return x

    class Training(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.gradient = Network(), ops.GradOperation(get_by_list=True)
            self.weights = ParameterTuple(self.network.trainable_params())

        def construct(self, x: Any) -> Any:
            return self.network(x), self.gradient(self.network, self.weights)(x)

    with no_init_parameters():
        return Training().set_train()


def compile_cases(cases: Sequence[Case], rank: int, enable_alltoall: bool) -> Any:
    """The final graph of rank `rank` as protobuf; raises what MindSpore raises."""
    import numpy as np
    from mindspore import Tensor, context
    from mindspore.train import anf_ir_pb2

    cell, executor, device_num = make_network(cases), cell_graph_executor(), cases[0][0].device_num
    with ascend_compiler(device_num, rank):
        context.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel", device_num=device_num, global_rank=rank, dataset_strategy="full_batch",
            enable_alltoall=enable_alltoall,
        )  # fmt: skip
        try:
            phase, _ = executor.compile(cell, Tensor(np.float32(0)), phase=f"pairs{id(cell)}", do_convert=False)
            model = anf_ir_pb2.ModelProto()
            model.ParseFromString(executor._graph_executor.get_func_graph_proto(phase, "anf_ir"))
        finally:
            context.reset_auto_parallel_context()
    return model.graph


class CompiledGraph:
    """What stands between the sources and the targets of the chains."""

    def __init__(self, graph: Any) -> None:
        self.nodes = {node.name: node for node in graph.node}
        self.constants = {c.key: [v.int_val or v.uint_val for v in c.value.values] for c in graph.const_vals}
        self.consumers: dict[tuple[int, str], Any] = {}
        for node in graph.node:
            if node.op_type in CONSUMERS and "/chains-CellList/" in node.full_name:
                number = int(node.full_name.split("/chains-CellList/")[1].split("-")[0])
                self.consumers[number, node.op_type] = node
        self.source_gradients = {n.input[1].name: n for n in graph.node if n.op_type == "ReluGrad"}

    def between(self, number: int, count: int) -> tuple[tuple[Seen, ...], tuple[Seen, ...]]:
        """Forward and backward operators of chain `number`, in order of execution (of one path, if it has one)."""
        forward: dict[str, Seen] = {}
        for kind in CONSUMERS[:count]:
            source = self._collect(self.consumers[number, kind].input[0].name, ("ReLU",), forward)
        backward_: dict[str, Seen] = {}
        gradients = tuple(f"{kind}Grad" for kind in CONSUMERS)
        self._collect(self.source_gradients[source].input[0].name, gradients, backward_)
        return tuple(forward.values()), tuple(backward_.values())

    def _collect(self, name: str, stop: tuple[str, ...], found: dict[str, Seen]) -> str:
        """Add what leads to node `name`, earliest first, and return the node where the first path ends."""
        node = self.nodes[name]
        if node.op_type in stop:
            return name
        inputs = [i.name for i in node.input if i.name in self.nodes]
        ends = [self._collect(i, stop, found) for i in (inputs if node.op_type == "MakeTuple" else inputs[:1])]
        if node.op_type not in ("MakeTuple", "TupleGetItem", "AddN"):
            found.setdefault(name, self._seen(node))
        return ends[0]

    def _seen(self, node: Any) -> Seen:
        attributes = {a.name: a.value for a in node.attribute}
        ranks = tuple(v.uint_val for v in attributes["rank_list"].values) if "rank_list" in attributes else None
        shape = tuple(d.size for d in node.output_type.tensor_type.shape.dim)
        offsets = tuple(self.constants[node.input[1].name]) if node.op_type == "StridedSlice" else None
        if node.op_type in SPLITS:
            return "Split", None, None, None
        return node.op_type, shape, ranks, offsets


def expected(steps: tuple[Step, ...], rank: int) -> tuple[Seen, ...]:
    """`steps` in the form of `CompiledGraph.between`."""

    def seen(step: Step) -> Seen:
        if step.kind in SPLITS:
            return "Split", None, None, None
        ranks = step.group.ranks(rank) if step.group and step.kind in COLLECTIVES else None
        offsets = None
        if step.kind == "StridedSlice" and step.group:
            index = position(step.group, rank)
            offsets = tuple(index * size if dim == step.dim else 0 for dim, size in enumerate(step.output_shape))
        return step.kind, step.output_shape, ranks, offsets

    return tuple(seen(step) for step in steps)


def compare(cases: Sequence[Case], rank: int, enable_alltoall: bool) -> Iterator[str | None]:
    """For every case None if prediction and compiler agree, else what differs."""
    possible: dict[int, tuple[tuple[Step, ...], ...]] = {}
    for number, (source, targets) in enumerate(cases):
        try:
            possible[number] = tuple(redistribute(source, target, enable_alltoall) for target in targets)
        except InvalidStrategyError as error:
            if not is_rejected((source, targets), enable_alltoall):
                yield f"predicted to be impossible, but compiles: {source} -> {targets}: {error}"
            else:
                yield None
    if not possible:
        return
    graph = CompiledGraph(compile_cases([cases[number] for number in possible], rank, enable_alltoall))
    for index, (number, chains) in enumerate(possible.items()):
        source, targets = cases[number]
        shared = fan_out(chains)
        predicted = expected(shared.forward, rank), expected(shared.backward, rank)
        compiled = graph.between(index, len(targets))
        form: Callable[[tuple[Seen, ...]], object] = _as_they_run if len(targets) == 1 else _only_collectives
        if [form(p) for p in predicted] == [form(c) for c in compiled]:
            yield None
        else:
            yield (
                f"{source} -> {targets}, rank {rank}, enable_alltoall={enable_alltoall}\n"
                f"    predicted {predicted[0]}\n    compiled  {compiled[0]}\n"
                f"    predicted {predicted[1]}\n    compiled  {compiled[1]}"
            )


def _as_they_run(seen: tuple[Seen, ...]) -> object:
    return seen


def _only_collectives(seen: tuple[Seen, ...]) -> object:
    # different slices of one tensor may coincide on one rank, and then MindSpore makes one of them, on that rank
    return Counter(operator for operator in seen if operator[0] in COLLECTIVES)


def communicates(case: Case, enable_alltoall: bool) -> bool:
    try:
        steps = [step for target in case[1] for step in redistribute(case[0], target, enable_alltoall)]
        return any(step.kind in COLLECTIVES for step in steps)
    except InvalidStrategyError:
        return False


def is_rejected(case: Case, enable_alltoall: bool) -> bool:
    """Whether MindSpore refuses `case` for at least one rank."""
    for rank in range(case[0].device_num):
        try:
            compile_cases([case], rank, enable_alltoall)
        except (RuntimeError, ValueError, TypeError):
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--fan-outs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    all_agree = True
    os.chdir(tempfile.mkdtemp())  # MindSpore leaves a report of every rejected network in the working directory
    for title, total, consumers in (("pairs", arguments.pairs, 1), ("fan-outs", arguments.fan_outs, 3)):
        agreed = compared = communicating = 0
        settings = [(n, a) for n in DEVICE_NUMS for a in (False, True)]
        for index, (device_num, enable_alltoall) in enumerate(settings):
            count = total * (index + 1) // len(settings) - total * index // len(settings)
            reshapes = [consumers == 1 and number % 5 < 2 for number in range(count)]
            cases = [random_case(device_num, consumers, reshape, rng) for reshape in reshapes]
            communicating += sum(communicates(case, enable_alltoall) for case in cases)
            for difference in compare(cases, rng.randrange(device_num), enable_alltoall):
                compared += 1
                agreed += difference is None
                if difference is not None:
                    print(difference, flush=True)
        print(f"{title}: {agreed}/{compared} equal ({communicating} of them communicate)", flush=True)
        all_agree &= agreed == compared
    return 0 if all_agree else 1


if __name__ == "__main__":
    sys.exit(main())
