"""Ctrl-C where a KeyboardInterrupt does harm: MindSpore drops it in Python that it has called, and crashes in a cut import."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(at_once: bool = True) -> Iterator[None]:
    """Ctrl-C ends what is done meanwhile: `at_once` where it is let through, and at the end at the latest.

    A handler of the program's own stays.
    """
    before, told = signal.getsignal(signal.SIGINT), list[int]()
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return

    def tell(number: int, _: object) -> None:
        told.append(number)
        if at_once:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, tell)
    try:
        yield
    except Exception:
        if told:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if told:
        raise KeyboardInterrupt
