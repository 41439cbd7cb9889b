"""Seconds that the places of a network take for one micro-batch, forward, backward and again.

The device works kernel after kernel; an eager host launches them and the collectives, and runs ahead of the device where it
can, so that the slower of the two decides:

    T = max(T_device, T_host),   T_device = Σ kernels + Σ collectives,   T_host = launches · t_host + Σ delays

Tensor ranks meet in every collective, so that a device waits for the slowest of their hosts however far ahead its own is, and
neither time hides the other wholly:

    T = sqrt(T_device² + T_host²)                                                     (empirical, as is the exponent)

A collective of p tensor ranks is delayed by p · rank_skew_s if the pipeline crosses nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.configuration import Part
from ms_symtensor.cost.groups import Groups, Sums
from ms_symtensor.cost.kernels import Kernels, stacked
from ms_symtensor.cost.shapes import Array, Shapes
from ms_symtensor.cost.work import Place


@dataclass(frozen=True)
class PlaceKernels:
    """The kernels of one place and its collectives, whatever the cluster."""

    forward: Kernels
    backward: Kernels
    parts: dict[Part, Kernels]
    sent: tuple[Sums, ...]
    sent_back: tuple[Sums, ...]


@dataclass(frozen=True)
class Seconds:
    """One pass: all of it, and the collectives in it; arrays with one entry per configuration."""

    time_s: Array
    communication_s: Array


@dataclass(frozen=True)
class PlaceSeconds:
    """Of one place: forward, backward, and forward again for each part that may be recomputed alone."""

    forward: Seconds
    backward: Seconds
    parts: dict[Part, Array]


def kernels_of(place: Place, groups: Groups) -> PlaceKernels:
    """What `place` does in every configuration of `groups`."""
    rows = len(groups.of)
    return PlaceKernels(
        stacked(place.forward, rows),
        stacked(place.backward, rows),
        {part: stacked(place.of_part(part), rows) for part in Part},
        groups.together(place.sent),
        groups.together(place.sent_back),
    )


def place_seconds(place: PlaceKernels, shapes: Shapes, groups: Groups, cluster: Cluster) -> PlaceSeconds:
    """What `place` takes on `cluster`."""
    return PlaceSeconds(
        _pass(place.forward, place.sent, shapes, groups, cluster),
        _pass(place.backward, place.sent_back, shapes, groups, cluster),
        {part: kernels.seconds(cluster) for part, kernels in place.parts.items()},
    )


def _pass(kernels: Kernels, sums: Sequence[Sums], shapes: Shapes, groups: Groups, cluster: Cluster) -> Seconds:
    nothing = np.zeros(len(shapes.of))
    sent = groups.sum_s(cluster, sums)
    device = kernels.seconds(cluster) + sent
    launches = kernels.launches + sum((each.times.sum(axis=1) for each in sums), nothing)
    host = launches * cluster.device.host_overhead_s
    if cluster.device.rank_skew_s:
        waits = sum((each.times.sum(axis=1) for each in sums if each.group == "tp"), nothing)
        host = host + groups.crosses_nodes(cluster, "pp") * waits * shapes.tp * cluster.device.rank_skew_s
    host = shapes.eager * host
    return Seconds(np.where(shapes.tp > 1, np.hypot(device, host), np.maximum(device, host)), sent)
