"""How the layers of a network may lie on the stages: pieces, cut in halves or put together again.

- one part a stage: stage s holds part s;
- loop: stage s holds parts s and s + P, as interleaved 1F1B has it; a plan's own loop may have more;
- V: stage s holds parts s and 2 P - 1 - s, as ZBV has it;
- both directions: stage s holds stage s of the network and stage P - 1 - s, and every parameter twice, as DualPipe has it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ms_symtensor.errors import InputError
from ms_symtensor.scheduling.problem import Part, Problem
from ms_symtensor.scheduling.published import BOTH, ONE, OWN, V


@dataclass(frozen=True)
class Piece:
    """Layers that follow each other.

    Attributes:
        forward_s, backward_s, weights_s: seconds of F, B and W of a micro-batch, without its borders.
        border_s: seconds of F and of B that sends and receives take.
        start_s, end_s: once per step.
        kept_B, deferred_B: see `Part`.
        rest_B: bytes that are there beside what micro-batches keep.
        blocks: repeated blocks among them; a piece can be cut between them, in pieces that take equal shares of all.
    """

    forward_s: float
    backward_s: float
    weights_s: float
    border_s: tuple[float, float] = (0.0, 0.0)
    start_s: float = 0.0
    end_s: float = 0.0
    kept_B: float = 1.0
    deferred_B: float = 1.0
    rest_B: float = 0.0
    blocks: int = 2


@dataclass(frozen=True)
class Network:
    """The pieces of a network, in its order, on `stage_num` stages.

    Attributes:
        limit_B: bytes of activations that a stage may keep; room_B: that it has for these and for what rests there.
        splits: whether backward passes may be split.
    """

    pieces: tuple[Piece, ...]
    stage_num: int
    micro_batch_num: int
    limit_B: float
    room_B: float = math.inf
    splits: bool = True

    def equal(self, activation_memory: float) -> "Network":
        """The same with pieces that all take and keep the mean, F, B and W alike, and can be cut anywhere. A stage may keep
        `activation_memory` times as much as the fullest one does in 1F1B.
        """
        number = len(self.pieces)
        mean_s = sum(one.forward_s + one.backward_s + one.weights_s for one in self.pieces) / number / 3
        kept_B = sum(one.kept_B for one in self.pieces) / number
        piece = Piece(
            mean_s, mean_s, mean_s, kept_B=kept_B, deferred_B=kept_B, blocks=math.lcm(number, 2 * self.stage_num)
        )
        in_flight = min(self.micro_batch_num, self.stage_num) * number / self.stage_num
        return replace(self, pieces=(piece,) * number, limit_B=activation_memory * in_flight * kept_B, room_B=math.inf)


def problem(network: Network, placement: str) -> Problem:
    """The schedules of `network` in a placement.

    Errors: InputError where its layers cannot lie so, or the memory of a stage does not hold one micro-batch.
    """
    stages = network.stage_num
    if placement == BOTH:
        pieces = [*_regrouped(network.pieces, stages)] * 2
        places = [*range(stages), *reversed(range(stages))]
        routes = [range(stages), range(stages, 2 * stages)]
        if network.micro_batch_num % 2:
            raise InputError(
                f"{network.micro_batch_num} micro-batches are not the same number in both directions: give an even one"
            )
    else:
        number = {ONE: stages, OWN: len(network.pieces)}.get(placement, 2 * stages)
        pieces = [*_regrouped(network.pieces, number)]
        places = [min(n, number - 1 - n) if placement == V else n % stages for n in range(number)]
        routes = [range(number)]
    parts = tuple(_part(one, place, network.splits) for one, place in zip(pieces, places, strict=True))
    share = 0.5 if placement == BOTH else 1.0  # sums and updates of parameters that lie there twice are done by halves

    def of_stages(each: Sequence[float]) -> tuple[float, ...]:
        return tuple(
            sum(value for value, place in zip(each, places, strict=True) if place == stage) for stage in range(stages)
        )

    rests_B = of_stages([one.rest_B for one in pieces])
    limits_B = tuple(min(network.limit_B, network.room_B - rest_B) for rest_B in rests_B)
    for stage, (limit_B, least_B) in enumerate(zip(limits_B, of_stages([one.kept_B for one in pieces]), strict=True)):
        if least_B > limit_B:
            raise InputError(
                f"stage {stage} has {max(0.0, limit_B) / 2**20:,.0f} MiB for activations and needs {least_B / 2**20:,.0f} for one"
                " micro-batch in"
                f" every part ({placement}): give more with --activation-memory"
            )
    start_s, end_s = of_stages([one.start_s for one in pieces]), of_stages([share * one.end_s for one in pieces])
    return Problem(
        placement, parts, tuple(map(tuple, routes)), network.micro_batch_num, limits_B, start_s, end_s
    )  # fmt: skip


def _part(piece: Piece, stage: int, splits: bool) -> Part:
    forward_s, backward_s = piece.border_s
    return Part(
        stage, piece.forward_s + forward_s, piece.backward_s + backward_s, piece.weights_s, piece.kept_B, piece.deferred_B,
        splits,
    )  # fmt: skip


def _regrouped(pieces: Sequence[Piece], number: int) -> Iterator[Piece]:
    """The same layers in so many pieces."""
    whole = math.lcm(len(pieces), number)
    times = whole // len(pieces)
    fewest = min(one.blocks for one in pieces)
    if fewest < times:
        raise InputError(
            f"a stage with {fewest} repeated blocks cannot be cut in {times} parts: plan with more layers a stage"
        )
    cut = [_share(one, times) for one in pieces for _ in range(times)]
    length = whole // number
    for start in range(0, whole, length):
        yield _together(cut[start : start + length])


def _share(piece: Piece, times: int) -> Piece:
    """One of so many equal pieces, each with borders of its own."""
    if times == 1:
        return piece
    shares = {
        name: getattr(piece, name) / times
        for name in ("forward_s", "backward_s", "weights_s", "start_s", "end_s", "kept_B", "deferred_B", "rest_B")
    }
    return replace(piece, **shares, blocks=piece.blocks // times)


def _together(pieces: Sequence[Piece]) -> Piece:
    """Neighbours as one piece, with the borders of one."""
    if len(pieces) == 1:
        return pieces[0]
    sums = {
        name: sum(getattr(one, name) for one in pieces)
        for name in (
            "forward_s",
            "backward_s",
            "weights_s",
            "start_s",
            "end_s",
            "kept_B",
            "deferred_B",
            "rest_B",
            "blocks",
        )
    }
    forward_s, backward_s = (max(sizes) for sizes in zip(*(one.border_s for one in pieces), strict=True))
    return Piece(border_s=(forward_s, backward_s), **sums)
