"""The folder that `symtensor serve --out` writes: serve.json with the deployment, and a plan's folder for each of its phases."""

from collections.abc import Mapping
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import parsed_json
from ms_symtensor.strategy import digest
from ms_symtensor.strategy import folder as folders
from ms_symtensor.strategy.reading import Field

FILE = folders.DEPLOYMENT_FILE
PLANS = "plans"
"""The key of serve.json with the digest of every plan's folder, by name."""
_REMEDY = "serve again, or go on with it as it is (--edited)"


def is_served(directory: str | Path) -> bool:
    """Whether `serve` wrote `directory`, and no plan of its own stands there."""
    path = Path(directory)
    return (path / FILE).is_file() and not (path / folders.PLAN_FILE).is_file()


def plans_of(directory: str | Path, edited: bool = False) -> Mapping[str, folders.PlanFolder]:
    """The plans' folders of a deployment, by name, in the order of its phases.

    Errors: InputError where there are none, with the reason, or, unless `edited`, where serve.json or a folder is not as it was
    written.
    """
    file = Path(directory) / FILE
    content = file.read_bytes()
    if not edited and not digest.is_sealed(content):
        raise InputError(f"{file} is cut or was changed: {_REMEDY}")
    root = Field(parsed_json(content, file, "the deployment", _REMEDY), str(file), remedy=_REMEDY)
    listed = {name: one.text() for name, one in root[PLANS].items()} if PLANS in root else {}
    if not listed:
        reason = root["plans_refused"].text() if "plans_refused" in root else "it was written without them"
        raise InputError(f"{file} names no plans: {reason}")
    found = {}
    for name, written in listed.items():
        if name in (".", "..") or name != Path(name).name:
            raise InputError(f"{file} names the folder {name!r}, which is none beside it: {_REMEDY}")
        found[name] = folders.read(file.parent / name, edited)
        if found[name].digest != written and not edited:
            raise InputError(f"{file.parent / name} is not the plan that {FILE} names: {_REMEDY}")
    return found
