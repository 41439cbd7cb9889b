"""The command `symtensor`: what main does with a command line.

A mistake of the user is one line on the standard error stream and exit code 2; a check that fails is exit code 1.
"""

import argparse
import logging
import os
from collections.abc import Sequence
from contextlib import nullcontext

from ms_symtensor.command_line import MODULES, parse
from ms_symtensor.errors import InputError, SymTensorError
from ms_symtensor.streams import logged, notice_error, shown_alone
from ms_symtensor.version import VERSION

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 a check failed, 2 a mistake in the request."""
    try:
        chosen = parse(arguments)
    except InputError as error:
        notice_error(error)
        return 2
    return run(chosen)


def run(chosen: argparse.Namespace) -> int:
    """Run the command that was asked for; its exit code. With --json, standard output holds what the command shows alone."""
    logged(chosen.verbose)
    _log.info("symtensor %s: %s", VERSION, chosen.command)
    try:
        with shown_alone() if getattr(chosen, "json", False) else nullcontext():
            return int(MODULES[chosen.command].run(chosen))
    except SymTensorError as error:
        _log.debug("where it happened", exc_info=True)
        notice_error(error)
        return 2
    except BrokenPipeError:  # who read the output (head, less) has seen enough
        return 141
    except FileNotFoundError:
        if _is_somewhere():
            raise
        notice_error(InputError("the working directory was removed: change to one that exists"))
        return 2


def _is_somewhere() -> bool:
    """Whether the working directory exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
