"""A plan's folder: its files, read at one moment and compared with what was written.

`digests.json` has the size and digest of every file. It stands in the folder itself, and so guards against accidents alone:
whoever changes a plan on purpose changes it too.
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.files.folder import write_folder
from ms_symtensor.files.lock import locked
from ms_symtensor.files.staging import has_leftovers, remove_leftovers
from ms_symtensor.files.writing import Content, encoded
from ms_symtensor.strategy import digest
from ms_symtensor.strategy.reading import Field

PLAN_FILE = "plan.json"
TIMING_FILE = "timing.json"
GRAPH_FILE = "graph.json"
DIGESTS_FILE = "digests.json"
DEPLOYMENT_FILE = "serve.json"
PYNATIVE_FILE = "pynative.json"
"""The figures of a plan for MindFormers' PyNative mode, which has no plan.json."""
OPERATOR_FILE = "operator_strategy.json"
CHECKPOINT_FILE = "parameter_layout"  # .json and .ckpt: MindSpore chooses the form by the ending
CODE_FILE = "shard.py"
MINDFORMERS_FILE = "mindformers.yaml"
MINDSPEED_FILE = "mindspeed.sh"
SPEED_UP_FILE = "parallel_speed_up.json"
REPORT_FILE = "report.txt"
_NAMES = (
    PLAN_FILE, TIMING_FILE, GRAPH_FILE, DIGESTS_FILE, OPERATOR_FILE, CODE_FILE, MINDFORMERS_FILE, MINDSPEED_FILE, SPEED_UP_FILE,
    REPORT_FILE,
)  # fmt: skip
HTML_FILE, TIMELINE_FILE = "report.html", "timeline.json"
TRAFFIC_FILE, PAIRS_FILE, LINKS_FILE, RANK_TABLE_FILE = "traffic.json", "traffic.csv", "links.csv", "rank_table.json"
SCHEDULE_FILE, SCHEDULE_TABLE_FILE = "schedule.json", "schedule.csv"
BESIDE = (
    HTML_FILE, TIMELINE_FILE, SCHEDULE_FILE, SCHEDULE_TABLE_FILE, TRAFFIC_FILE, PAIRS_FILE, LINKS_FILE, RANK_TABLE_FILE,
    "verified.json", "proved.json", "pareto.json",
)  # fmt: skip
"""What commands write beside a plan: no part of it, so that no digest tells of them; they go when another plan comes there."""
FOR_MINDSPORE = re.compile(rf"{re.escape(OPERATOR_FILE)}|{CHECKPOINT_FILE}(_\d+)?\.(json|ckpt)")
"""The names of the files that MindSpore reads, of which plans have different ones."""
_SEALED = (TIMING_FILE,)
"""Files that hold their own digest: `digests.json` is the same for equal plans, however long their search took."""
FORMAT = "symtensor-digests"
VERSION = 1
REMEDY = "plan again, or go on with it as it is (--edited; in Python edited=True)"
_TRIES = 10
"""A folder is read again so often when it is replaced meanwhile; empirical."""
_SHOWN = 5


@dataclass(frozen=True)
class PlanFolder:
    """The plan `file` and what stands beside it: the content of `files` by name.

    `digest`: of the whole folder, None where it has no digests. `differences`: what became of the files that are not as they were
    written, by name. `edited`: whether the user goes on with it all the same.
    """

    file: Path
    files: Mapping[str, bytes]
    digest: str | None = None
    differences: Mapping[str, str] = field(default_factory=dict)
    edited: bool = False

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def path(self, name: str) -> Path:
        """Where file `name` of the folder is."""
        return self.file.with_name(name)


def read(path: str | os.PathLike[str], edited: bool = False) -> PlanFolder:
    """The plan's folder at `path`, a directory or the plan's file in one.

    Errors: InputError if it cannot be read, or, unless `edited`, if files differ from what was written, are missing or cut, with
    their names.
    """
    file = Path(path)
    if file.is_dir():
        file = file / PLAN_FILE
    for _ in range(_TRIES):
        folder, is_there = _read(file, edited)
        if is_there:  # else another plan took its place meanwhile
            break
    if file.name not in folder and (file.parent / DEPLOYMENT_FILE).is_file():
        raise InputError(
            f"{file.parent} is a deployment of serve, which this does not read: give one of its plans, such as decode or decode_0"
        )
    if file.name not in folder and (file.parent / PYNATIVE_FILE).is_file():
        raise InputError(
            f"{file.parent} is a plan for mindformers-pynative, which this does not read: `prove --target mindformers-pynative` "
            "does, and `audit` its YAML"
        )
    if file.name not in folder and DIGESTS_FILE not in folder:
        raise InputError(f"cannot read the plan {file} (No such file): check the path")
    if folder.differences and not edited:
        raise InputError(f"{file.parent}: {told(folder.differences)}: {REMEDY}")
    return folder


def told(differences: Mapping[str, str]) -> str:
    """The files that are not as they were written, in a few words."""
    shown = [f"{name} {what}" for name, what in list(differences.items())[:_SHOWN]]
    rest = len(differences) - len(shown)
    return ", ".join(shown) + (f" (and {rest} more)" if rest else "")


def missing_digests(folder: PlanFolder) -> InputError:
    """What to raise where a plan says that it was written with digests, and there are none."""
    return InputError(f"{folder.file.parent}: {DIGESTS_FILE} is missing: {REMEDY}")


def write(directory: str | os.PathLike[str], contents: Mapping[str, Content]) -> str:
    """Make `contents`, by name, the plan's files in `directory`, with their digests: all of them or none, in place of those of
    the plan that was there. Files that are no plan's stay. Returns the digest of the folder.

    InputError if the directory cannot be written, or has a directory in the place of a file.
    """
    digests = _digests(contents)
    write_folder(
        directory,
        {**contents, DIGESTS_FILE: digests},
        _of_the_plan,
        lambda name: _is_of_plans(name) or name in contents,
    )
    return digest.of_content(digests)


def tidy(directory: str | os.PathLike[str]) -> None:
    """Remove what killed writers left beside `directory` and in it, where this process may."""
    target = Path(os.path.realpath(directory))
    for folder in (target.parent, target):
        if has_leftovers(folder):
            try:
                with locked(folder):
                    remove_leftovers(folder, _is_of_plans)
            except OSError:
                continue  # it may be read, and not written: whoever may write there removes them


def _digests(contents: Mapping[str, Content]) -> str:
    def entry(content: Content) -> dict[str, object]:
        written = encoded(content)
        return {"size_B": len(written), digest.SEAL: digest.of_content(written)}

    files = {name: None if name in _SEALED else entry(contents[name]) for name in sorted(contents)}
    return digest.sealed({"format": FORMAT, "version": VERSION, "files": files})


def _read(file: Path, edited: bool) -> tuple[PlanFolder, bool]:
    """What is there, and whether the folder is still the one at its path."""
    try:
        handle = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot read the plan {file} ({error.strerror}): check the path") from error
    try:
        names = {name for name in os.listdir(handle) if _is_of_plans(name)} | {file.name}
        names |= _listed_names(_content(handle, DIGESTS_FILE))
        files = {name: content for name in sorted(names) if (content := _content(handle, name)) is not None}
        folder = _compared(file, files, edited)
        try:
            is_there = os.path.samestat(os.fstat(handle), os.stat(file.parent))
        except OSError:
            is_there = False
        return folder, is_there
    finally:
        os.close(handle)


def _content(folder: int, name: str) -> bytes | None:
    """What is in a file, None where there is none."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder).st_mode):
            return None
        with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {name} of the plan ({error.strerror}): check the path") from error


def _compared(file: Path, files: Mapping[str, bytes], edited: bool) -> PlanFolder:
    if DIGESTS_FILE not in files:
        return PlanFolder(file, files, edited=edited)
    written = files[DIGESTS_FILE]
    if not digest.is_sealed(written):
        return PlanFolder(file, files, None, {DIGESTS_FILE: "is cut or was changed"}, edited)
    listed = _listed(file.with_name(DIGESTS_FILE), written)
    differences = {name: what for name, entry in listed.items() if (what := _difference(name, entry, files))}
    if file.name not in listed:
        differences[file.name] = f"is not in {DIGESTS_FILE}"
    return PlanFolder(file, files, digest.of_content(written), differences, edited)


def _listed(path: Path, written: bytes) -> dict[str, tuple[int, str] | None]:
    """Size and digest of every file by name, None for those that hold their own."""
    root = Field(json.loads(written), str(path), remedy="plan again")
    root.require_format(FORMAT, VERSION, "a list of a plan's digests")
    return {
        name: None if entry.value is None else (entry["size_B"].integer(0), entry[digest.SEAL].text())
        for name, entry in root["files"].items()
    }


def _listed_names(digests: bytes | None) -> set[str]:
    """The names of the plan's files, if its digests are as they were written: formats come with their own names."""
    if digests is None or not digest.is_sealed(digests):
        return set()
    files = json.loads(digests).get("files", {})
    return {name for name in files if name == os.path.basename(name)}


def _difference(name: str, entry: tuple[int, str] | None, files: Mapping[str, bytes]) -> str:
    """How a file differs; empty if it does not."""
    if name not in files:
        return "is missing"
    if entry is None:
        return "" if digest.is_sealed(files[name]) else "differs"
    size_B, written = entry
    if len(files[name]) < size_B:
        return f"has {len(files[name]):,} of {size_B:,} bytes"
    return "" if digest.of_content(files[name]) == written else "differs"


def _is_of_plans(name: str) -> bool:
    return name in _NAMES or name in BESIDE or FOR_MINDSPORE.fullmatch(name) is not None


def _of_the_plan(directory: Path) -> frozenset[str]:
    """The files of the plan in `directory`, if there is one: those with digests, or all with names of plans' files."""
    there = {one.name for one in directory.iterdir() if not one.is_dir()}
    named = {name for name in there if _is_of_plans(name)}
    if PLAN_FILE not in there and DIGESTS_FILE not in there:
        return frozenset()
    try:
        content = (directory / DIGESTS_FILE).read_bytes()
        if digest.is_sealed(content):
            return frozenset(there & {DIGESTS_FILE, *BESIDE, *_listed(directory / DIGESTS_FILE, content)})
    except (OSError, InputError):
        pass
    return frozenset(named)
