"""Where nothing fits: the nearest changes that would, each of which was tried by a search."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from ms_symtensor.cluster.topology import MOST_DEVICES
from ms_symtensor.errors import InfeasibleError, SymTensorError
from ms_symtensor.search.constraints.floor import Floor
from ms_symtensor.search.constraints.limits import FREE, SWAP
from ms_symtensor.search.constraints.obstacle import DoesNotFitError
from ms_symtensor.search.constraints.request import Request

Found = TypeVar("Found")

Change = tuple[str, Request]
"""What is asked for otherwise, in words, and the request."""

FURTHER = 5
"""So many numbers of devices are looked at, each twice the one before (empirical: what must be shared out is there from the
first on, and activations seldom are 16 times as much)."""

EXACT = Floor()
"""No floor: what fits is told by a search alone."""


def naming_what_fits(
    request: Request, search: Callable[[Request], Found], any_batch: bool = False, floor: Floor = EXACT
) -> Found:
    """What `search(request)` finds. Its InfeasibleError also names the changes that fit: more devices, a smaller batch where the
    network can be had for it (`any_batch`), no limits, optimizer offload.

    What is below the `floor` is not searched; where nothing can help, the error says so at once.
    """
    floor.require_room(request)
    try:
        return search(request)
    except InfeasibleError as error:
        of_kinds = [_more_devices(request, error, floor)]
        of_kinds += [_smaller_batches(request, error, floor) if any_batch else []]
        of_kinds += [[change] for change in _on_host(request, error, floor)]
        fit = [name for changes in of_kinds if (name := _first(search, changes)) is not None]
        fit += [name] if (name := _without_pins(search, request)) is not None else []
        what = f"what fits: {', or '.join(fit)}" if fit else "no change that was tried fits"
        raise InfeasibleError(f"{error}; {what}") from None


def _first(search: Callable[[Request], Found], changes: Sequence[Change]) -> str | None:
    """The first of `changes` that fits; where one does, all further ones do. What cannot be planned does not fit."""

    def fits(number: int) -> bool:
        try:
            search(replace(changes[number][1], is_trial=True))
        except SymTensorError:
            return False
        return True

    # The smallest change is the likeliest: it is what is missing, rounded up.
    first = 0 if changes and fits(0) else bisect_left(range(len(changes)), True, lo=min(1, len(changes)), key=fits)
    return changes[first][0] if first < len(changes) else None


def _more_devices(request: Request, error: InfeasibleError, floor: Floor) -> list[Change]:
    """Twice as many devices, and so on: from as many as would hold what is there whatever the batch, if all of it could be cut,
    to twice as many as would hold everything.
    """
    least = most = 1
    if isinstance(error, DoesNotFitError):
        room_B = request.limit_B - floor.buffer_B
        if room_B <= 0:
            return []
        shared_B = error.obstacle.peak_B - error.obstacle.memory_B["buffers"]
        least, most = (
            max(1, math.ceil(math.log2(max(1.0, size_B / room_B)))) for size_B in (error.obstacle.at_rest_B, shared_B)
        )
    counts = [request.device_num << power for power in range(least, min(most + 2, least + FURTHER))]
    there = [n for n in counts if n <= min(MOST_DEVICES, request.cluster.max_ranks or MOST_DEVICES)]
    changed = [(f"{count} devices", replace(request, device_num=count)) for count in there]
    return [change for change in changed if floor.of(change[1]) <= request.limit_B]


def _smaller_batches(request: Request, error: InfeasibleError, floor: Floor) -> list[Change]:
    """Half the batch, and so on; none where what does not depend on it does not fit."""
    if isinstance(error, DoesNotFitError) and error.obstacle.at_rest_B + floor.always_B(request) > request.limit_B:
        return []
    found, batch = [], request.global_batch_size
    while batch % 2 == 0:
        batch //= 2
        found.append((f"a global batch of {batch}", replace(request, global_batch_size=batch)))
    return found


def _on_host(request: Request, error: InfeasibleError, floor: Floor) -> Iterator[Change]:
    """The request with optimizer offload, if what stays on the device beside them fits."""
    limits, stays_B = request.limits, 0
    if isinstance(error, DoesNotFitError):
        stays_B = error.obstacle.at_rest_B - error.obstacle.memory_B["optimizer_states"] + floor.always_B(request)
    if request.cluster.host is not None and not limits.names(SWAP) and stays_B <= request.limit_B:
        swapped = replace(limits, least={**limits.least, SWAP: 1}, most={**limits.most, SWAP: 1})
        yield f"optimizer offload ({SWAP}=yes)", replace(request, limits=swapped)


def _without_pins(search: Callable[[Request], Found], request: Request) -> str | None:
    """Without which of the limits a plan is found: those of which one alone is to blame, or else all; None where even that does
    not help.
    """
    every = request.limits.each
    if not every or _first(search, [("", replace(request, limits=FREE))]) is None:
        return None
    if len(every) > 1:
        alone = [pin for pin, left in every if _first(search, [(pin, replace(request, limits=left))]) is not None]
        if alone:
            return f"without {' or without '.join(alone)}"
    return f"without {request.limits}"
