"""Seconds that the places of a network take for one micro-batch, forward, backward and again.

The device works kernel after kernel; an eager host launches them and the collectives, and runs ahead of the device where it
can, so that the slower of the two decides:

    T = max(T_device, T_host),   T_device = Σ kernels + Σ collectives,   T_host = launches · t_host + Σ delays

Tensor ranks meet in every collective, so that a device waits for the slowest of their hosts however far ahead its own is, and
neither time hides the other wholly:

    T = sqrt(T_device² + T_host²)                                                     (empirical, as is the exponent)

Where the host has to wait for what the device computes, it is never ahead, and the two add up. A collective of p tensor ranks is
delayed by p · rank_skew_s if the pipeline crosses nodes. What runs under a product is hidden up to its length, but slows it down.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.configuration import Part
from ms_symtensor.cost.groups import Groups, Sums
from ms_symtensor.cost.kernels import Kernels, stacked
from ms_symtensor.cost.shapes import Array, Shapes
from ms_symtensor.cost.work import Place, Transfer

OVERLAP_SLOWDOWN = 0.3
"""empirical: a hidden collective slows the computation above it by so much of its own time (it takes cores and bandwidth)."""


@dataclass(frozen=True)
class Overlap:
    """A collective, and the kernels beside which it may run; no `sums`: it never happens."""

    sums: tuple[Sums, ...]
    under: Kernels


@dataclass(frozen=True)
class PlaceKernels:
    """The kernels of one place and its collectives, whatever the cluster."""

    forward: Kernels
    backward: Kernels
    parts: dict[Part, tuple[Kernels, tuple[Sums, ...]]]
    sent: tuple[Sums, ...]
    sent_back: tuple[Sums, ...]
    overlaps: tuple[Overlap, ...]  # of those sent back
    delivery: tuple[Kernels, tuple[Sums, ...]]
    asks_host: bool


@dataclass(frozen=True)
class Seconds:
    """One pass: all of it, and the collectives in it; arrays with one entry per configuration."""

    time_s: Array
    communication_s: Array


@dataclass(frozen=True)
class PlaceSeconds:
    """Of one place: forward, backward, forward again where it is recomputed as a whole, and again for each part that some
    configuration recomputes alone.
    """

    forward: Seconds
    backward: Seconds
    again_s: Array
    parts: dict[Part, Array]


def kernels_of(place: Place, groups: Groups) -> PlaceKernels:
    """What `place` does in every configuration of `groups`."""
    again = {part for c in groups.of for part, _ in c.recomputation.parts}
    parts = {part: place.of_part(part) for part in Part if part in again}
    return PlaceKernels(
        stacked(place.forward, groups.of),
        stacked(place.backward, groups.of),
        {part: (stacked(of.forward, groups.of), groups.together(of.sent)) for part, of in parts.items()},
        groups.together(place.sent),
        groups.together(place.sent_back),
        tuple(_overlap(transfer, groups) for transfer in place.sent_back if transfer.under is not None),
        (stacked(place.delivery.forward, groups.of), groups.together(place.delivery.sent)),
        place.asks_host,
    )


def _overlap(transfer: Transfer, groups: Groups) -> Overlap:
    """`transfer` in the configurations whose framework does not wait for it."""
    free = np.array([c.overlap_tensors for c in groups.of], dtype=float)
    works = () if transfer.under is None else (transfer.under,)
    return Overlap(groups.together((replace(transfer, times=transfer.times * free),)), stacked(works, groups.of))


def exposed(needed: Array, window: Array) -> Array:
    """What collectives of `needed` seconds add to computation of `window` seconds beside which they run."""
    hidden = np.minimum(needed, window)
    left: Array = needed - hidden + OVERLAP_SLOWDOWN * hidden
    return left


def place_seconds(place: PlaceKernels, shapes: Shapes, groups: Groups, cluster: Cluster) -> PlaceSeconds:
    """What `place` takes on `cluster`."""
    forward = _pass(place.forward, place.sent, (), shapes, groups, cluster, place.asks_host)
    # PyTorch runs a block again as it is; MindSpore copies what gradients read (program.recomputation), and the norm behind the
    # last product is read by one.
    copies = shapes.mindspore * shapes.where(lambda c: not c.model.post_norms)
    kernels, sent = place.delivery
    return PlaceSeconds(
        forward,
        _pass(place.backward, place.sent_back, place.overlaps, shapes, groups, cluster),
        forward.time_s - copies * (kernels.seconds(cluster) + groups.sum_s(cluster, sent)),
        {part: of.seconds(cluster) + groups.sum_s(cluster, sent) for part, (of, sent) in place.parts.items()},
    )


def _pass(
    kernels: Kernels,
    sums: Sequence[Sums],
    overlaps: Sequence[Overlap],
    shapes: Shapes,
    groups: Groups,
    cluster: Cluster,
    asks_host: bool = False,
) -> Seconds:
    nothing = np.zeros(len(shapes.of))
    sent = groups.sum_s(cluster, sums)
    for each in overlaps:
        if each.sums:
            needed = groups.sum_s(cluster, each.sums)
            sent = sent - needed + exposed(needed, each.under.seconds(cluster))
    device = kernels.seconds(cluster) + sent
    launches = kernels.launches + sum((each.times.sum(axis=1) for each in sums), nothing)
    host = launches * cluster.device.host_overhead_s
    if cluster.device.rank_skew_s:
        waits = sum((each.times.sum(axis=1) for each in sums if each.group == "tp"), nothing)
        host = host + groups.crosses_nodes(cluster, "pp") * waits * shapes.tp * cluster.device.rank_skew_s
    host = shapes.eager * host
    together = device + host if asks_host else np.where(shapes.tp > 1, np.hypot(device, host), np.maximum(device, host))
    return Seconds(together, sent)
