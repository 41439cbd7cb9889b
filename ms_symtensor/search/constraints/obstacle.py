"""What stands in the way where nothing fits: of the plan that needs least, the fullest stage, and what fills it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.parameter import STATES_B
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.program.liveness import live_B, lives, program_steps
from ms_symtensor.program.program import ParameterPlacement, Phase, Program
from ms_symtensor.search.constraints.limits import SWAP
from ms_symtensor.search.constraints.request import GIB, Request
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name

MIB = 1 << 20

AT_REST = ("parameters", "gradients", "optimizer_states")
"""The kinds of memory that parameters take, whatever the batch."""


@dataclass(frozen=True)
class Obstacle:
    """Bytes of a device by kinds (`cost.step.MEMORIES`) on the fullest stage, number `stage` (None: there is but one), of the
    plan that needs least, which is laid out as `layout` says; and the largest tensor among what takes most.
    """

    layout: str
    stage: int | None
    memory_B: Mapping[str, int]
    largest: str
    largest_B: int

    @property
    def peak_B(self) -> int:
        return sum(self.memory_B.values())

    @property
    def at_rest_B(self) -> int:
        """What is there whatever the batch."""
        return sum(self.memory_B[kind] for kind in AT_REST)

    def text(self, limit_B: int) -> str:
        """`of the plan that needs least (…), stage 0 needs …`."""
        where = "a device" if self.stage is None else f"a device of stage {self.stage}"
        falling = sorted(self.memory_B.items(), key=lambda pair: (-pair[1], pair[0]))
        parts = ", ".join(f"{kind} {value / GIB:.1f}" for kind, value in falling if value)
        return (
            f"of the plan that needs least ({self.layout}), {where} needs {self.peak_B / GIB:.1f} GiB,"
            f" {amount(max(self.peak_B - limit_B, MIB // 10 + 1))} too much ({parts}; the largest tensor: {self.largest},"
            f" {self.largest_B / GIB:.2f} GiB)"
        )


def amount(some_B: int) -> str:
    """`2.3 GiB`, or `0.8 MiB` where it is not even a tenth of one, or `56 B`."""
    if some_B >= GIB / 10:
        return f"{some_B / GIB:.1f} GiB"
    return f"{some_B / MIB:.1f} MiB" if some_B >= MIB / 10 else f"{some_B} B"


class DoesNotFitError(InfeasibleError):
    """Memory is what is missing: `obstacle` says where."""

    def __init__(self, request: Request, obstacle: Obstacle) -> None:
        self.obstacle = obstacle
        super().__init__(f"{nothing_fits(request)}: {obstacle.text(request.limit_B)}")


def does_not_fit(request: Request, obstacle: Obstacle) -> InfeasibleError:
    """The error for `obstacle`: where that would fit, it is the limits that forbid it (blocks as a whole, for example)."""
    if obstacle.peak_B > request.limit_B:
        return DoesNotFitError(request, obstacle)
    return InfeasibleError(
        f"{nothing_fits(request)}: {obstacle.peak_B / GIB:.1f} GiB would do for {obstacle.layout}, which is not asked for"
    )


def smallest_obstacle(errors: Sequence[InfeasibleError]) -> InfeasibleError | None:
    """Of `errors` that which lacks the least memory; if memory is nowhere what is missing, the first one, if there is any."""
    lacking = [error for error in errors if isinstance(error, DoesNotFitError)]
    return min(lacking, key=lambda error: error.obstacle.peak_B, default=next(iter(errors), None))


def nothing_fits(request: Request) -> str:
    """How a message begins where nothing fits."""
    return f"nothing found that fits {amount(request.limit_B)} on {request.space}"


def largest_tensor(graph: Graph, program: Program, memory_B: Mapping[str, int]) -> tuple[str, int]:
    """The largest tensor of the kind of memory that takes most, and its bytes; `program` is that of the stage."""
    kind = max((*AT_REST, "activations"), key=lambda one: memory_B[one])
    if kind == "activations":
        return _largest_activation(graph, program)
    whole = {"parameters": "", "gradients": "the gradient of ", "optimizer_states": "the optimizer states of "}[kind]
    name, size = max(
        ((name, _bytes_of(kind, one)) for name, one in program.parameters.items()), key=lambda pair: (pair[1], pair[0])
    )
    return f"{whole}{name}", size


def _bytes_of(kind: str, one: ParameterPlacement) -> int:
    share = math.prod(one.slice_shape)
    if kind == "parameters":
        return share * size_B(one.dtype)
    if not one.requires_grad:
        return 0
    return share * STATES_B if kind == "optimizer_states" else math.prod(one.layout.slice_shape) * size_B(one.dtype)


def _largest_activation(graph: Graph, program: Program) -> tuple[str, int]:
    """Of what is alive when the most is."""
    steps = program_steps(program)
    alive, sizes = lives(steps, program.kept), {i: t.size_B for i, t in enumerate(program.tensors)}
    every = live_B(alive, sizes, len(steps))
    moment = every.index(max(every))
    there = [t for t, (first, last) in alive.items() if first <= moment <= last]
    tensor = max(there, key=lambda t: (sizes[t], -t))
    maker = next(n for n in program.nodes if tensor in n.outputs or tensor == n.scratch)
    op = graph.op_by_name.get(maker.op)
    name = maker.op if op is None else short_name(op)
    return ("a gradient of " if maker.phase is Phase.BACKWARD else "the result of ") + name, sizes[tensor]


def why_not_on_host(cluster: Cluster, needed_B: float) -> str:
    """Why optimizer states of a device that take so many bytes do not fit into the host; empty if they do."""
    host = cluster.host
    if host is None or host.memory_B is None or needed_B <= host.memory_B:
        return ""
    return (
        f"the optimizer states of a device need {needed_B / GIB:.1f} GiB of host memory, which has"
        f" {host.memory_B / GIB:.1f} GiB for each: use more devices, or no {SWAP}"
    )
