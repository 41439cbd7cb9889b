"""What numbers alone rule out, before anything is searched."""

import math

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.arithmetic.check import require_arithmetic
from ms_symtensor.search.constraints.arithmetic.conditions import forms_groups
from ms_symtensor.search.constraints.arithmetic.facts import Facts
from ms_symtensor.search.constraints.checked import MOST_DEVICES
from ms_symtensor.search.constraints.limits import FREE, Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.space.facts import facts_of
from ms_symtensor.search.space.pinnable import require_pinnable
from ms_symtensor.tensor.graph import Graph


def require_possible(graph: Graph, request: Request, parts: int = 1, whole: str = "") -> None:
    """InputError for limits of `request` that no plan can keep: it names the pin, what it disagrees with, and what works.

    `graph` is one of so many equal `parts` of the step, periods of blocks being one (`folded.alternating`). `whole`: why it
    has neither stages nor micro-batches, where that is known.
    """
    if request.limits != FREE:
        require_pinnable(graph, request)
        require_arithmetic(facts_of(graph, request, parts, whole), request.limits)


def require_numbers(cluster: Cluster, device_num: int, limits: Limits, batch: int | None = None) -> None:
    """The same of what is known before the network is: its devices, and maybe the samples of its step."""
    require_devices(cluster, device_num)
    require_arithmetic(Facts(device_num, cluster.max_ranks, batch=batch), limits)


def require_devices(cluster: Cluster, device_num: int) -> None:
    """InputError for a number of devices that `cluster` does not have, no cluster has, or of which MindSpore forms no groups."""
    if device_num < 1:
        raise InputError(f"device_num is {device_num}: give a positive number of devices")
    if device_num > MOST_DEVICES:
        raise InputError(
            f"device_num is {device_num}: plans are for at most {MOST_DEVICES} devices, more than any cluster has; a plan lists"
            " its ranks one by one"
        )
    if cluster.max_ranks is not None and device_num > cluster.max_ranks:
        raise InputError(f"device_num is {device_num}, but cluster {cluster.name} has {cluster.max_ranks} devices")
    if not forms_groups(device_num):
        fewer = next(n for n in range(device_num, 0, -1) if forms_groups(n))
        raise InputError(
            f"device_num is {device_num}: MindSpore forms communication groups on 1, 2, 4 or a multiple of 8 devices: give"
            f" {fewer} or {8 * math.ceil(device_num / 8) if device_num > 4 else 4}"
        )
