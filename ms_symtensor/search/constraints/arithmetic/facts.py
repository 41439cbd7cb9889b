"""The numbers of a network and of devices that what is pinned has to agree with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ms_symtensor.algebra.divisors import divisors


@dataclass(frozen=True)
class Cuttable:
    """The dims of an operator, called `name` in words, that a degree may cut, one or several of them, with their sizes.

    `instead`: what to write in its place, where MindSpore cuts none of them because of how the network is written.
    """

    name: str
    sizes: Mapping[str, int]
    instead: str = ""

    def is_cut(self, degree: int) -> bool:
        """Whether cuts of its dims make `degree` slices."""
        return _divides_among(degree, tuple(self.sizes.values()))

    def __str__(self) -> str:
        dims = ", ".join(f"{dim} ({size})" for dim, size in self.sizes.items())
        return f"{self.name}, whose dims are {dims}" if dims else self.name


@dataclass(frozen=True)
class Facts:
    """What is known of a step on `device_num` devices of at most `max_devices`; None or nothing where it is not known.

    `batch`: samples of a step. `blocks`: repeated ones, of which a stage holds at least one. `samples`: those that attention
    sees. `weights`: of every major product, what model_parallel cuts; `experts`: what expert_parallel cuts; `attention`: what
    context_parallel cuts.

    Why the network cannot be had otherwise, in words: `whole`, neither in stages nor in micro-batches; `one_stage`, in no stages;
    `no_accumulation`, not in micro-batches on one stage; `one_run`, not in virtual stages.
    """

    device_num: int
    max_devices: int | None = None
    model: str = "the network"
    batch: int | None = None
    blocks: int | None = None
    samples: int | None = None
    weights: tuple[Cuttable, ...] = ()
    experts: tuple[Cuttable, ...] = ()
    attention: tuple[Cuttable, ...] = ()
    whole: str = ""
    one_stage: str = ""
    no_accumulation: str = ""
    one_run: str = ""


def _divides_among(degree: int, sizes: tuple[int, ...]) -> bool:
    """Whether `degree` is a product of one divisor of each of `sizes`."""
    if degree == 1 or not sizes:
        return degree == 1
    return any(_divides_among(degree // n, sizes[1:]) for n in _common(degree, sizes[0]))


def _common(one: int, other: int) -> Iterator[int]:
    return (n for n in divisors(one) if other % n == 0)
