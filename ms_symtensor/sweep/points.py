"""The points of a sweep, from what the command line says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ms_symtensor.cluster.topology import MOST_DEVICES
from ms_symtensor.errors import InputError

MOST_POINTS = 1000
"""A plan takes seconds."""


@dataclass(frozen=True)
class Point:
    """One plan that is asked for; `factors`: numbers of the cluster, by path, and what they are multiplied by."""

    cluster: str
    device_num: int
    global_batch_size: int | None
    seq_length: int | None
    factors: tuple[tuple[str, float], ...] = ()

    @property
    def curve(self) -> tuple[object, ...]:
        """What points have alike that differ in their number of devices only."""
        return self.cluster, self.seq_length, self.factors

    @property
    def said(self) -> str:
        """In words."""
        changes = [f"{path} x {factor:g}" for path, factor in self.factors if factor != 1]
        sequence = [f"sequence {self.seq_length}"] if self.seq_length else []
        return ", ".join([self.cluster, *sequence, *changes])


def numbers(option: str, text: str) -> tuple[int, ...]:
    """`8..64`: 8, 16, 32, 64; `8,24`; both. InputError, naming the option, for anything else."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            low, high = int(first), int(last) if dots else int(first)
        except ValueError:
            raise InputError(f"{option} {text!r}: give numbers (8,16) or doublings (8..64)") from None
        if not 1 <= low <= high or (high > MOST_DEVICES and option == "--device-num"):
            raise InputError(f"{option} {part.strip()}: give numbers from 1 to {MOST_DEVICES}, the smaller first")
        while low <= high:
            found.append(low)
            low *= 2
    return tuple(dict.fromkeys(found))


def factors(texts: Sequence[str]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """What --vary says, `levels.roce.bandwidth_Bps=0.5,1,2` each. InputError for what it does not take."""
    found: dict[str, tuple[float, ...]] = {}
    for text in texts:
        path, equals, values = text.partition("=")
        try:
            every = tuple(float(value) for value in values.split(","))
        except ValueError:
            every = ()
        if not equals or not every or not all(1e-6 <= value <= 1e6 for value in every):
            raise InputError(f"--vary {text!r}: give PATH=FACTOR,FACTOR, such as levels.roce.bandwidth_Bps=0.5,1,2")
        if path in found:
            raise InputError(f"--vary {path} is there twice: give all its factors at once")
        found[path] = every
    return tuple(found.items())


def points(
    clusters: Sequence[str],
    devices: Sequence[int],
    batches: Sequence[int | None],
    sequences: Sequence[int | None],
    vary: Sequence[tuple[str, tuple[float, ...]]],
    is_weak: bool,
) -> tuple[Point, ...]:
    """All of them. `is_weak`: batches are those of the fewest devices, and grow with the devices.

    Raises:
        InputError: for too many points, and for a batch that does not grow to a whole number of samples.
    """
    found: list[Point] = []
    combined = product(*(tuple((path, value) for value in values) for path, values in vary))
    for change, cluster, sequence, batch, number in product(combined, clusters, sequences, batches, devices):
        samples = batch
        if is_weak:
            if batch is None:
                raise InputError(
                    "--weak grows the batch with the devices: give --global-batch-size, that of the fewest"
                )
            samples, rest = divmod(batch * number, min(devices))
            if rest:
                raise InputError(
                    f"--weak: {batch} samples on {min(devices)} devices are no whole number on {number}: give a multiple of"
                    f" {min(devices)}"
                )
        found.append(Point(cluster, number, samples, sequence, change))
    if len(found) > MOST_POINTS:
        raise InputError(f"the sweep has {len(found)} points: at most {MOST_POINTS}; leave some values out")
    return tuple(found)


def by_curve(found: Sequence[Point]) -> Mapping[tuple[object, ...], list[int]]:
    """The numbers of the points of every curve, fewest devices first."""
    curves: dict[tuple[object, ...], list[int]] = {}
    for number, point in enumerate(found):
        curves.setdefault(point.curve, []).append(number)
    return {curve: sorted(of, key=lambda n: found[n].device_num) for curve, of in curves.items()}
