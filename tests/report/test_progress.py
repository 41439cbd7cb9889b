"""What takes long says what it does, on a terminal."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios

from ms_symtensor.report.progress import progress


def test_the_first_step_is_shown_while_it_runs(monkeypatch):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with open(slave, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        shown = b""
        with progress() as step:
            step("graph")
            while b"step 1: graph" not in shown and select.select([master], [], [], 60)[0]:
                shown += os.read(master, 1024)
    os.close(master)
    assert b"step 1: graph" in shown
