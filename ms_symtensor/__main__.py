"""`python -m ms_symtensor` is the command `symtensor`."""

import gc
import sys

from ms_symtensor.allocator import restart_tuned
from ms_symtensor.command_line import parse
from ms_symtensor.errors import InputError
from ms_symtensor.streams import close_streams, notice_error, open_streams

COMPILING = ("audit", "verify")  # most of their time is MindSpore's compiler


def command() -> int:
    """Run the command that this process was started for, and return its exit code: 130 if the user interrupts it."""
    open_streams()
    try:
        try:
            chosen = parse()
        except InputError as error:
            notice_error(error)
            return 2
        if chosen.command in COMPILING:
            restart_tuned()
        from ms_symtensor.cli import run

        code = run(chosen)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read the help has seen enough
        return 141
    finally:
        close_streams()
    gc.freeze()  # Python would look through all of MindSpore's modules for garbage before it ends
    return code


if __name__ == "__main__":
    sys.exit(command())
