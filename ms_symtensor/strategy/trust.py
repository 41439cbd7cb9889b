"""Whose plan it is: digests of the folders that this user's own `plan` made, in the user's state folder.

A plan names the file that builds its network. That file is run only where the plan is this user's own, or the user says so: a
plan of somebody else could name any file.
"""

import os
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.files.writing import update_file
from ms_symtensor.strategy.folder import PLAN_FILE, PlanFolder

VARIABLE = "SYMTENSOR_TRUST"
MOST = 4096
"""Folders that are remembered, the last ones: 260 KiB."""


def is_trusted(folder: PlanFolder) -> bool:
    """Whether the environment says that plans are trusted, or this user's own `plan` wrote the plan in `folder` as it is.

    InputError where the environment says neither yes nor no.
    """
    if (said := os.environ.get(VARIABLE, "0")) not in ("0", "1", ""):
        raise InputError(f"{VARIABLE} is {said!r}: give 1, or 0")
    if said == "1":
        return True
    unchanged = folder.file.name == PLAN_FILE and PLAN_FILE not in folder.differences
    return folder.digest is not None and unchanged and folder.digest in _known()


def remember(digest: str) -> None:
    """Note that this user's own `plan` made the folder with `digest`. InputError if that cannot be noted."""

    def changed(content: bytes) -> str:
        others = [line for line in content.decode(errors="replace").splitlines() if line != digest]
        return "\n".join([*others[-(MOST - 1) :], digest]) + "\n"

    update_file(_file(), changed)


def _known() -> frozenset[str]:
    try:
        return frozenset(_file().read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError, InputError):
        return frozenset()  # nothing is known: nothing is trusted


def _file() -> Path:
    """Where digests are kept. InputError for a user without a home."""
    said = os.environ.get("XDG_STATE_HOME", "")
    try:
        state = (
            Path(said) if os.path.isabs(said) else Path.home() / ".local" / "state"
        )  # as the XDG base directories say
    except RuntimeError as error:
        raise InputError(f"this user has no home directory ({error}): set XDG_STATE_HOME") from error
    return state / "symtensor" / "planned"
