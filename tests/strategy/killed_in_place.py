"""Plans that are written into the folder in which the process works, and killed at every step: `killed_in_place.py SCRATCH`.

Prints what was in the folder after each kill, and whether it loads, as JSON.
"""

import json
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "files"))
from killing import is_killed
from plans import hand_written

from ms_symtensor.errors import InputError
from ms_symtensor.files.staging import is_passing
from ms_symtensor.strategy import file

TIMING = "timing.json"


def files_of(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if not is_passing(one.name) and one.name != TIMING}


def told(folder: Path, old: dict[str, bytes], new: dict[str, bytes]) -> str:
    there = files_of(folder)
    try:
        file.load(folder)
    except InputError:
        return "old, refused" if there == old else "new, refused" if there == new else "a mixture, refused"
    return "old" if there == old else "new" if there == new else "a mixture"


def killed(scratch: Path, has_digests: bool) -> list[str]:
    """What is there after each kill; `has_digests`: of the plan that is written over."""
    graph, plan = hand_written("llama2_7b", 2, 4)
    _, other = hand_written("llama2_7b", 4, 2)
    file.save(plan, scratch / "old", graph)
    file.save(other, scratch / "new", graph)
    if not has_digests:
        data = json.loads((scratch / "old" / "plan.json").read_text())
        del data["made_with"]
        (scratch / "old" / "plan.json").write_text(json.dumps(data))
        (scratch / "old" / "digests.json").unlink()
    old, new = files_of(scratch / "old"), files_of(scratch / "new")
    found: list[str] = []
    folder = scratch / "work" / "plan"
    while True:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(scratch / "old", folder)
        os.chdir(folder)
        if not is_killed(lambda: file.save(other, ".", graph), len(found) + 1):
            return found
        found.append(told(folder, old, new))
        file.save(other, ".", graph)
        if files_of(folder) != new or any(map(is_passing, os.listdir(folder))) or len(os.listdir(folder.parent)) > 1:
            found.append("something left")


if __name__ == "__main__":
    root = Path(sys.argv[1])
    print(json.dumps([killed(root / "with", True), killed(root / "without", False)]))
