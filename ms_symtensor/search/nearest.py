"""Where nothing fits: the nearest changes that would, each of which was tried by a search."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.search.asked.limits import FREE, SWAP
from ms_symtensor.search.asked.obstacle import DoesNotFitError
from ms_symtensor.search.asked.request import Request

Found = TypeVar("Found")

Change = tuple[str, Request]
"""What is asked for otherwise, in words, and the request."""


def naming_what_fits(request: Request, search: Callable[[Request], Found], any_batch: bool = False) -> Found:
    """What `search(request)` finds. Its InfeasibleError also names the changes that fit: more devices, a smaller batch where the
    network can be had for it (`any_batch`), no limits, optimizer states on the host.
    """
    try:
        return search(request)
    except InfeasibleError as error:
        of_kinds = [_more_devices(request, error), _smaller_batches(request, error) if any_batch else []]
        of_kinds += [[change] for change in _others(request, error)]
        fit = [name for changes in of_kinds if (name := _first(search, changes)) is not None]
        what = f"what fits: {', or '.join(fit)}" if fit else "no change that was tried fits"
        raise InfeasibleError(f"{error}; {what}") from None


def _first(search: Callable[[Request], Found], changes: Sequence[Change]) -> str | None:
    """The first of `changes` that fits; where one does, all further ones do."""

    def fits(number: int) -> bool:
        try:
            search(changes[number][1])
        except (InfeasibleError, InputError):
            return False
        return True

    # The smallest change is the likeliest: it is what is missing, rounded up.
    first = 0 if changes and fits(0) else bisect_left(range(len(changes)), True, lo=min(1, len(changes)), key=fits)
    return changes[first][0] if first < len(changes) else None


def _more_devices(request: Request, error: InfeasibleError) -> list[Change]:
    """Twice as many devices, and so on: from as many as would hold what is there whatever the batch, if all of it could be cut,
    to twice as many as would hold everything.
    """
    least = most = 1
    if isinstance(error, DoesNotFitError):
        least, most = (
            max(1, math.ceil(math.log2(max(1.0, size_B / request.limit_B))))
            for size_B in (error.obstacle.at_rest_B, error.obstacle.peak_B)
        )
    counts = [request.device_num << power for power in range(least, most + 2)]
    there = [n for n in counts if request.cluster.max_ranks is None or n <= request.cluster.max_ranks]
    return [(f"{count} devices", replace(request, device_num=count)) for count in there]


def _smaller_batches(request: Request, error: InfeasibleError) -> list[Change]:
    """Half the batch, and so on; none where what does not depend on it does not fit."""
    if isinstance(error, DoesNotFitError) and error.obstacle.at_rest_B > request.limit_B:
        return []
    found, batch = [], request.global_batch_size
    while batch % 2 == 0:
        batch //= 2
        found.append((f"a global batch of {batch}", replace(request, global_batch_size=batch)))
    return found


def _others(request: Request, error: InfeasibleError) -> Iterator[Change]:
    """The request without its limits; and with states on the host, if what stays on the device beside them fits."""
    limits, stays_B = request.limits, 0
    if isinstance(error, DoesNotFitError):
        stays_B = error.obstacle.at_rest_B - error.obstacle.memory_B["optimizer_states"]
    if limits != FREE:
        yield f"without {limits}", replace(request, limits=FREE)
    if request.cluster.host is not None and not limits.names(SWAP) and stays_B <= request.limit_B:
        swapped = replace(limits, least={**limits.least, SWAP: 1}, most={**limits.most, SWAP: 1})
        yield f"optimizer states on the host ({SWAP}=yes)", replace(request, limits=swapped)
