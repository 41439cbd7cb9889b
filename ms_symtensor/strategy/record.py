"""What was found out about a plan, beside its files: verified.json, proved.json, pareto.json, each with the plan's digest."""

import json
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.files.writing import write_file
from ms_symtensor.strategy import digest
from ms_symtensor.strategy.folder import PlanFolder

VERIFIED_FILE, PROVED_FILE, PARETO_FILE = "verified.json", "proved.json", "pareto.json"


def record(folder: PlanFolder, name: str, found: Any) -> str:
    """Write `found`, plain JSON data, beside the plan in `folder`; nothing where the folder has no digest or was edited, since
    what is found is not about a plan as it was written. Returns why it cannot be written, "" where it can.
    """
    if folder.digest is None or folder.differences:
        return ""
    try:
        write_file(folder.path(name), digest.sealed({"plan": folder.digest, "found": found}))
    except InputError as error:
        return f"{name} is not written: {error}"
    return ""


def recorded(folder: PlanFolder, name: str) -> Any:
    """What was recorded as `name` of the plan in `folder`; None where nothing was, or of another plan, or it was changed."""
    content = folder.files.get(name, b"")
    if folder.digest is None or not digest.is_sealed(content):
        return None
    data = json.loads(content)
    return data.get("found") if data.get("plan") == folder.digest else None


def without_times(found: Any) -> Any:
    """`found` without the seconds that a check took, so that the same check writes the same bytes."""
    if isinstance(found, dict):
        return {
            name: without_times(value) for name, value in found.items() if name not in ("compile_time_s", "seconds")
        }
    return [without_times(one) for one in found] if isinstance(found, list) else found
