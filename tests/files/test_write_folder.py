"""Folders as users find them, whatever becomes of their writers. Processes are real, and so are kills."""

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.files.exchange import exchange
from ms_symtensor.files.folder import MOST_LINKED, write_folder
from ms_symtensor.files.lock import LOCK_FILE, locked
from ms_symtensor.files.writing import update_file, write_file

ROOT = Path(__file__).parents[2]


def is_ours(name: str) -> bool:
    return name.startswith("p_")


def owned(directory: Path) -> frozenset[str]:
    return frozenset(one.name for one in directory.iterdir() if is_ours(one.name) and one.is_file())


def write(directory: Path, **contents: str) -> None:
    write_folder(directory, contents, owned, is_ours)


def files_of(directory: Path) -> dict[str, str]:
    return {str(one.relative_to(directory)): one.read_text() for one in directory.rglob("*") if one.is_file()}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    script = [sys.executable, str(Path(__file__).with_name("killing.py")), str(tmp_path_factory.mktemp("killed"))]
    done = subprocess.run(script, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    return found


def test_a_folder_is_old_or_new_wherever_its_writer_is_killed(killed: dict[str, dict[str, list[str]]]) -> None:
    found = killed["folders"]
    assert set(found["killed"]) == {"old", "new"} and len(found["killed"]) > 30
    assert set(found["after"]) == {"new"}


def test_a_file_is_old_or_new_wherever_its_writer_is_killed(killed: dict[str, dict[str, list[str]]]) -> None:
    found = killed["files"]
    assert set(found["killed"]) == {"old", "new"} and set(found["after"]) == {"new"}


def test_in_two_steps_a_folder_is_whole_or_put_back_by_the_next_writer(
    killed: dict[str, dict[str, list[str]]],
) -> None:
    found = killed["in two steps"]
    assert set(found["killed"]) == {"old", "new", "missing"} and found["killed"].count("missing") <= 2
    assert set(found["after"]) == {"new"}


def test_files_of_the_user_stay_as_they_are(tmp_path: Path) -> None:
    place = tmp_path / "plan"
    write(place, p_a="old", p_b="old")
    (place / "runs").mkdir(mode=0o750)
    for name in ("notes", "runs/log"):
        (place / name).write_text(name)
    (place / "link").symlink_to("nowhere")
    kept = [(place / "notes").stat(), (place / "runs/log").stat()]
    place.chmod(0o710)
    with open(place / "runs/log", "a") as log:  # by a process that goes on writing
        write(place, p_a="new")
        log.write(" and on")
    assert files_of(place) == {"p_a": "new", "notes": "notes", "runs/log": "runs/log and on"}
    assert [(place / one).stat().st_ino for one in ("notes", "runs/log")] == [one.st_ino for one in kept]
    assert (place / "notes").stat().st_mtime_ns == kept[0].st_mtime_ns
    assert (place / "link").readlink() == Path("nowhere")
    assert place.stat().st_mode & 0o777 == 0o710 and (place / "runs").stat().st_mode & 0o777 == 0o750
    assert list(tmp_path.iterdir()) == [place]


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    write(tmp_path / "real", p_a="old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", p_a="new")
    assert (tmp_path / "link").is_symlink() and files_of(tmp_path / "real") == {"p_a": "new"}


def test_the_folder_in_which_one_works_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell in a folder that was replaced would be nowhere."""
    write(tmp_path / "plan", p_a="old", p_b="old")
    (tmp_path / "plan" / "notes").write_text("mine")
    monkeypatch.chdir(tmp_path / "plan")
    inode = os.stat(".").st_ino
    write(Path("."), p_a="new")
    assert os.stat(tmp_path / "plan").st_ino == inode
    assert files_of(tmp_path / "plan") == {"p_a": "new", "notes": "mine"}


def test_a_folder_of_many_other_files_stays_the_same(tmp_path: Path) -> None:
    place = tmp_path / "home"
    place.mkdir()
    for number in range(MOST_LINKED + 1):
        (place / f"f{number}").touch()
    inode = place.stat().st_ino
    write(place, p_a="new")
    assert place.stat().st_ino == inode and len(files_of(place)) == MOST_LINKED + 2
    assert list(tmp_path.iterdir()) == [place]


def test_a_directory_in_the_place_of_a_file_leaves_all_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "p_a").write_text("old")
    (tmp_path / "p_b").mkdir()
    with pytest.raises(InputError, match=r"cannot write \S+/p_b, which is a directory: move it"):
        write(tmp_path, p_a="new", p_b="new", p_c="new")
    assert files_of(tmp_path) == {"p_a": "old"}


def test_a_full_disk_leaves_the_old_folder(tmp_path: Path) -> None:
    """No file of this process may become larger than a kilobyte for a while."""
    write(tmp_path / "plan", p_a="old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        for place in (tmp_path / "plan", tmp_path / "other"):
            with pytest.raises(InputError, match="cannot write to .* .File too large.: choose another directory"):
                write(place, p_a="new", p_b="x" * 5000)
        with pytest.raises(InputError, match="File too large"):
            write_file(tmp_path / "file", "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files_of(tmp_path) == {"plan/p_a": "old"}


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """Threads with a lock file each: what one reads, no other has changed when it writes."""

    def count() -> None:
        for _ in range(20):
            update_file(tmp_path / "number", lambda content: str(int(content or b"0") + 1))

    writers = [threading.Thread(target=count) for _ in range(4)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert files_of(tmp_path) == {"number": "80"}


def test_a_writer_that_does_not_end_is_named(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(InputError, match=f"another process is writing in {tmp_path}"),
        locked(tmp_path, 0.0),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_of_a_process_that_is_gone_is_none(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).touch()
    write_file(tmp_path / "a", "new")
    assert files_of(tmp_path) == {"a": "new"}


def test_two_folders_change_places(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["b"]
    with pytest.raises(OSError, match="No such file"):
        exchange(tmp_path / "a", tmp_path / "none")


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/dev/null")):
        with pytest.raises(InputError, match="is no file"):
            write_file(place, "new")
