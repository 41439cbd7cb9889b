"""A progress line on the standard error stream, for what takes longer than a second."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TextIO

DELAY_S = 1.0

_log = logging.getLogger(__name__)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Calling the yielded function with a text ends a step and names the next one; the time goes on meanwhile.

    Nothing is shown in the first second, nor where the standard error stream is no terminal. Where steps are logged, each is a
    line of the log instead.
    """
    if not sys.stderr.isatty() or _log.isEnabledFor(logging.INFO):
        yield lambda text: _log.info("step: %s", text)
        return
    from tqdm import tqdm

    with (
        _terminal() as terminal,
        tqdm(delay=DELAY_S, file=terminal, leave=False, bar_format="{elapsed} step {n}: {desc}") as bar,
    ):

        def step(text: str) -> None:
            bar.set_description_str(text, refresh=False)
            bar.update()

        with _every_second(bar.refresh):
            yield step


def _terminal() -> TextIO:
    """The standard error stream, also while a compile sends what is written there to a file."""
    return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace")


@contextmanager
def _every_second(show: Callable[[], object]) -> Iterator[None]:
    ended = Event()

    def tick() -> None:
        while not ended.wait(DELAY_S):
            show()

    ticking = Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield
    finally:
        ended.set()
        ticking.join()


@contextmanager
def counted(what: str, number: int) -> Iterator[Callable[[int], None]]:
    """Calling the yielded function with how many of `number` are done shows a bar; where `progress` shows nothing, neither does
    it.
    """
    if not sys.stderr.isatty() or _log.isEnabledFor(logging.INFO):
        yield lambda done: _log.info("%s: %d of %d", what, done, number)
        return
    from tqdm import tqdm

    with _terminal() as terminal, tqdm(total=number, desc=what, file=terminal, leave=False) as bar:

        def to(done: int) -> None:
            bar.update(done - bar.n)

        yield to
