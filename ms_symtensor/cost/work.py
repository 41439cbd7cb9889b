"""The operators of a transformer's training step on one device: what they compute, move and send, for one micro-batch.

Each is written once, as a signature would have it, with the sizes of `Shapes`: a product `m k, k n -> m n` is computed
forward, and two of its kind backward (`m n, k n -> m k` and `m k, m n -> k n`); element-wise operators move bytes; where a
summed dim is cut, partial sums are combined.
"""

from dataclasses import dataclass, replace
from typing import Any

from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cost.configuration import Part

Number = Any  # an array with one entry per configuration, a number, or a sympy expression


@dataclass(frozen=True)
class Work:
    """Kernels on one device.

    A product has `points` (elements of its result), `depth` (its summed dim) and 2 FLOPs per point and depth; fused attention
    has `flops` for heads of `head_dim`; both and element-wise operators move `traffic_B`. `slowdown`: how much longer a product
    computes than one of its size that the cube unit likes. `kernels`: launches; `times`: how often all that happens.
    """

    name: str
    points: Number = 0.0
    depth: Number = 0.0
    flops: Number = 0.0
    head_dim: Number = 1.0
    traffic_B: Number = 0.0
    slowdown: Number = 1.0
    kernels: Number = 1.0
    times: Number = 1.0


@dataclass(frozen=True)
class Transfer:
    """A collective of `size_B` bytes (of the whole tensor, see cluster.hccl) over the ranks of `group`.

    `under`: work beside which it may run where the framework does not wait for it (Configuration.overlap_tensors).
    """

    name: str
    kind: Collective
    group: str  # one of cost.groups.GROUPS
    size_B: Number
    times: Number = 1.0
    under: Work | None = None


@dataclass(frozen=True)
class Operator:
    """Forward and backward of one operator, and the bytes it keeps in between.

    `part`: the selective recomputation that computes it again, so that `part_kept_B` need not be kept. `delivers`: its result
    goes into that of the block, and no gradient inside reads it.
    """

    forward: tuple[Work, ...] = ()
    backward: tuple[Work, ...] = ()
    sent: tuple[Transfer, ...] = ()
    sent_back: tuple[Transfer, ...] = ()
    part: Part | None = None
    kept_B: Number = 0.0
    part_kept_B: Number = 0.0
    delivers: bool = False

    def delivering(self) -> "Operator":
        """As the last one, or what that only adds."""
        return replace(self, delivers=True)

    def keeping(self, kept_B: Number, part_kept_B: Number = 0.0) -> "Operator":
        """With so many bytes kept."""
        return replace(self, kept_B=self.kept_B + kept_B, part_kept_B=self.part_kept_B + part_kept_B)

    def sending(self, forward: tuple[Transfer, ...] = (), back: tuple[Transfer, ...] = ()) -> "Operator":
        """With collectives that wait for it."""
        return replace(self, sent=self.sent + forward, sent_back=self.sent_back + back)


@dataclass(frozen=True)
class Place:
    """A part of the network that lies on one stage as a whole: a block, the embedding, the head.

    `asks_host`: going forward, an eager host has to wait for numbers that the device computes before it can launch more.
    """

    name: str
    operators: tuple[Operator, ...]
    asks_host: bool = False

    @property
    def forward(self) -> tuple[Work, ...]:
        return tuple(w for o in self.operators for w in o.forward)

    @property
    def backward(self) -> tuple[Work, ...]:
        return tuple(w for o in self.operators for w in o.backward)

    @property
    def sent(self) -> tuple[Transfer, ...]:
        return tuple(t for o in self.operators for t in o.sent)

    @property
    def sent_back(self) -> tuple[Transfer, ...]:
        return tuple(t for o in self.operators for t in o.sent_back)

    def of_part(self, part: Part) -> "Place":
        """What belongs to `part`, which may be computed again."""
        return Place(part.value, tuple(o for o in self.operators if o.part is part))

    @property
    def delivery(self) -> "Place":
        """What only the block's result needs."""
        return Place("delivery", tuple(o for o in self.operators if o.delivers))

    @property
    def kept_B(self) -> Number:
        return sum(o.kept_B + o.part_kept_B for o in self.operators)

    def part_kept_B(self, part: Part) -> Number:
        """What need not be kept if `part` is computed again."""
        return sum(o.part_kept_B for o in self.operators if o.part is part)


def product(
    name: str, m: Number, n: Number, k: Number, element_B: Number, matrices: Number = 1.0, times: Number = 1.0,
    slowdown: Number = 1.0,
) -> Operator:  # fmt: skip
    """x [m, k] @ w [k, n] with its two gradients; several `matrices` of that size share the rows."""
    moved_B = (m * k + m * n + matrices * k * n) * element_B

    def one(which: str, points: Number, depth: Number) -> Work:
        return Work(f"{name} {which}", points, depth, traffic_B=moved_B, times=times, slowdown=slowdown)

    return Operator(
        forward=(one("forward", m * n, k),),
        backward=(one("of the input", m * k, n), one("of the weight", matrices * k * n, m / matrices)),
    )


def passes(
    name: str,
    elements: Number,
    forward_B: Number,
    backward_B: Number,
    kernels: Number = 1.0,
    kernels_back: Number = 1.0,
    part: Part | None = None,
    times: Number = 1.0,
) -> Operator:
    """Element-wise work that moves so many bytes per element."""
    return Operator(
        forward=(Work(name, traffic_B=elements * forward_B, kernels=kernels, times=times),),
        backward=(Work(f"{name} backward", traffic_B=elements * backward_B, kernels=kernels_back, times=times),),
        part=part,
    )
