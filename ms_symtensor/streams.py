"""Standard output and error of a command, which may be closed, full, or of an encoding that lacks characters."""

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

from ms_symtensor.errors import InputError

LINE_CHARACTERS = 450
"""Of an error: three lines of a wide terminal."""


_shown: list[TextIO] = []
"""Where `show` prints while `shown_alone` is open."""


def show(text: str) -> None:
    """Print `text`, the output of a command. BrokenPipeError if its reader has gone; InputError if it cannot be written."""
    try:
        print(text, flush=True, file=_shown[-1] if _shown else None)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot write to standard output ({error.strerror}): all else is done; send the output elsewhere"
        ) from error


@contextmanager
def shown_alone() -> Iterator[None]:
    """While open, standard output gets what `show` prints alone; what anything else prints goes to the standard error stream.

    So does what C libraries and child processes write.
    """
    output = sys.stdout
    try:
        is_descriptor = output.fileno() == 1
    except (AttributeError, OSError, io.UnsupportedOperation):
        is_descriptor = False
    if not is_descriptor:  # a program in whose process the command runs has put its own stream there
        with _shown_on(output), redirect_stdout(sys.stderr):
            yield
        return
    output.flush()
    kept = os.dup(1)
    alone = os.fdopen(kept, "w", encoding=output.encoding, errors=output.errors)
    try:
        os.dup2(2, 1)
        with _shown_on(alone), redirect_stdout(sys.stderr):
            yield
    finally:
        output.flush()
        os.dup2(kept, 1)
        with suppress(OSError):  # `show` has told what it could not write
            alone.close()


@contextmanager
def silenced() -> Iterator[None]:
    """While open, C libraries write nothing to the standard output: HiGHS says a line there now and then."""
    try:
        kept = os.dup(1)
    except OSError:  # it is closed
        yield
        return
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def _shown_on(stream: TextIO) -> Iterator[None]:
    _shown.append(stream)
    try:
        yield
    finally:
        _shown.pop()


def logged(verbosity: int) -> None:
    """Have ms_symtensor log to the standard error stream: nothing, what it does (1), or all (2)."""
    logger = logging.getLogger("ms_symtensor")
    logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)])
    if verbosity and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("symtensor: %(relativeCreated)d ms: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


def notice(text: str) -> None:
    """A line for the user beside the output, on the standard error stream; nothing where there is none, or it is full."""
    if sys.stderr is not None:
        over_progress = "\r\x1b[K" if sys.stderr.isatty() else ""
        with suppress(OSError):
            print(f"{over_progress}symtensor: {text}", file=sys.stderr, flush=True)


def notice_error(error: Exception) -> None:
    """What was wrong, as a line for the user that is no longer than `LINE_CHARACTERS` with all that stands before it."""
    notice(one_line(f"symtensor: error: {error}").removeprefix("symtensor: "))


def one_line(text: str) -> str:
    """`text` on one line of characters that can be printed, at most `LINE_CHARACTERS`: what was wrong and what to do remain."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    if len(line) <= LINE_CHARACTERS:
        return line
    tail = LINE_CHARACTERS // 3
    return f"{line[: LINE_CHARACTERS - tail - 3]} … {line[-tail:]}"


def open_streams() -> None:
    """Have three standard streams, each to nowhere where it is closed, that write `?` for what their encoding lacks.

    Else the next file that is opened would be the standard output, and get what anything prints.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))
        if number > 0 and hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="replace")


def close_streams() -> None:
    """Write out what is still to be printed, or drop it: Python would complain of it at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
