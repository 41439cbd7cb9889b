"""Where nothing fits: whether it would with optimizer states on the host."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.asked.limits import SWAP
from ms_symtensor.search.asked.request import Request

Found = TypeVar("Found")


def naming_swap(request: Request, search: Callable[[Request], Found]) -> Found:
    """What `search(request)` finds. Its InfeasibleError names `swap_optimizer` where a plan with that would fit."""
    try:
        return search(request)
    except InfeasibleError as error:
        if request.cluster.host is None or request.limits.names(SWAP):
            raise
        limits = request.limits
        swapped = replace(limits, least={**limits.least, SWAP: 1}, most={**limits.most, SWAP: 1})
        try:
            search(replace(request, limits=swapped))
        except InfeasibleError:
            raise error from None
        raise InfeasibleError(f"{error}; or keep optimizer states on the host ({SWAP}=yes), which fits") from None
