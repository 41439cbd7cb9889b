"""A progress bar on the standard error stream, for what takes longer than a second."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DELAY_S = 1.0


@contextmanager
def progress(steps: int) -> Iterator[Callable[[str], None]]:
    """Calling the yielded function with a text ends a step (of `steps`) and names the next one.

    Nothing is shown in the first second, nor where the standard error stream is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from tqdm import tqdm

    with tqdm(total=steps, delay=DELAY_S, file=sys.stderr, leave=False, bar_format="{l_bar}{bar}| {elapsed}") as bar:
        first = True

        def step(text: str) -> None:
            nonlocal first
            bar.set_description(text, refresh=False)
            bar.update(0 if first else 1)
            first = False

        yield step
