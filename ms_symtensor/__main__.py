"""`python -m ms_symtensor` is the command `symtensor`."""

import gc
import sys

from ms_symtensor.allocator import restart_tuned
from ms_symtensor.streams import close_streams, open_streams

COMPILING = ("audit", "verify")  # most of their time is MindSpore's compiler


def command() -> int:
    """Run the command that this process was started for, and return its exit code: 130 if the user interrupts it."""
    open_streams()
    try:
        if sys.argv[1:2] and sys.argv[1] in COMPILING:
            restart_tuned()
        from ms_symtensor.cli import main

        code = main()
    except KeyboardInterrupt:
        return 130
    finally:
        close_streams()
    gc.freeze()  # Python would look through all of MindSpore's modules for garbage before it ends
    return code


if __name__ == "__main__":
    sys.exit(command())
