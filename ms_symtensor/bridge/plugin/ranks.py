"""All ranks have the same plan: compared over MindSpore's world group before the compile.

MindSpore compiles a program for each rank by itself. Ranks with other plans wait for each other in collectives that do not
match, or compute with slices that do not fit, without a word.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ms_symtensor.bridge.plugin.facts import Facts
from ms_symtensor.bridge.plugin.records import Record, difference, from_bytes
from ms_symtensor.errors import InputError
from ms_symtensor.streams import notice

_PATIENCE_S = 5.0
"""A rank that has waited so long says what it waits for (empirical: ranks of one job are within a second of each other)."""
_said: list[str] = []


class Comparison:
    """The part of one rank in comparisons; made by `comparing`."""

    def __init__(self, is_awaited: bool) -> None:
        self._is_awaited = is_awaited

    def require_equal(self, facts: Facts, origin: str = "") -> None:
        """InputError on all ranks, with the first difference, unless `facts` are the same on all. Waits for all of them.

        `origin`: where this rank's plan is from, in words.
        """
        self._exchange(Record(facts, origin=origin))

    def fail(self, error: Exception) -> None:
        """Tell the other ranks, which are waiting, that this one stops, and why."""
        if self._is_awaited:
            with suppress(InputError):
                self._exchange(Record(failure=" ".join(str(error).split()) or type(error).__name__))

    def _exchange(self, own: Record) -> None:
        size = _world_size()
        if size == 1:
            return
        self._is_awaited = False  # whatever goes wrong from here on, the others know or wait no more
        if len({*_gathered(own.digest.encode(), size)}) > 1:
            raise InputError(difference([from_bytes(content) for content in _gathered(own.to_bytes(), size)]))
        self._is_awaited = True


@contextmanager
def comparing(is_awaited: bool = True) -> Iterator[Comparison]:
    """What happens inside is what all ranks do before the compile: if it fails on one of them, it ends on all, named.

    Unless the others do not wait for this one (`is_awaited`): they will compare nothing.
    """
    comparison = Comparison(is_awaited)
    try:
        yield comparison
    except Exception as error:
        comparison.fail(error)
        raise


def _world_size() -> int:
    """Ranks of the world group; 1, and said once where there are to be others, if there is none."""
    from mindspore.communication import _comm_helper as helper
    from mindspore.communication import get_group_size

    if os.environ.get("MS_SIMULATION_LEVEL"):
        reason = "MindSpore simulates the cluster"
    elif helper._HCCL_TEST_AVAILABLE:
        reason = "the cluster is described, not there"
    elif not helper.GlobalComm.INITED:
        reason = "mindspore.communication.init() has not been called"
    elif get_group_size() == 1:
        reason = "one process runs"
    else:
        return int(get_group_size())
    say_once(f"the plans of ranks are not compared: {reason}")
    return 1


def _gathered(own: bytes, size: int) -> list[bytes]:
    """`own` of every rank, all of one length, a multiple of 4. InputError if not all ranks come."""
    import numpy as np
    from mindspore import Tensor, ops

    patience = threading.Timer(_PATIENCE_S, say_once, [f"waiting for the other ranks ({size} in all) to compare plans"])
    patience.daemon = True
    patience.start()
    try:
        # As whole numbers: of the types that this primitive takes on CPU and on Ascend alike, the one without rounding.
        every = ops.AllGather()(Tensor(np.frombuffer(own, np.int32))).asnumpy()
    except RuntimeError as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
        raise InputError(
            f"the ranks could not compare their plans: of {size} not all came in time, or their network failed ({reason}):"
            " look into the logs of the other ranks for one that ended, or that compiles something else"
        ) from error
    finally:
        patience.cancel()
    return [part.tobytes() for part in every.reshape(size, -1)]


def say_once(text: str) -> None:
    """A line on the standard error stream, if it has not been there."""
    if text not in _said:
        _said.append(text)
        notice(text)
