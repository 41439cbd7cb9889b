"""Ctrl-C while MindSpore works ends the command, whatever MindSpore makes of the exception."""

import os
import signal
from contextlib import suppress

import pytest

from ms_symtensor.interrupts import interruptible


@pytest.fixture(autouse=True)
def heeded():
    """Where tests run in the background of a shell, SIGINT is ignored: not here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_that_was_dropped_is_raised_at_the_end():
    with pytest.raises(KeyboardInterrupt), interruptible(), suppress(KeyboardInterrupt):
        interrupt()


def test_an_interrupt_that_was_taken_for_an_error_is_none():
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            interrupt()
        except KeyboardInterrupt as error:
            raise RuntimeError("the network cannot be parsed") from error


def test_what_must_not_be_cut_short_goes_on_to_its_end():
    reached = False
    with pytest.raises(KeyboardInterrupt), interruptible(at_once=False):
        interrupt()
        reached = True
    assert reached


def test_an_error_without_an_interrupt_stays():
    with pytest.raises(RuntimeError, match="rejected"), interruptible():
        raise RuntimeError("rejected")


def test_a_handler_of_the_program_stays():
    told = list[int]()
    signal.signal(signal.SIGINT, lambda number, _: told.append(number))
    with interruptible():
        interrupt()
    assert told == [signal.SIGINT]
