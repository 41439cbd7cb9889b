"""Files that are written whole or not at all, and JSON that people can read."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ms_symtensor.errors import InputError

LINE = 120
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_text(data: Any) -> str:
    """`data` as JSON: whatever fits on a line stands on one line. Equal data gives equal text."""
    return _lines(data, 0) + "\n"


def write_files(
    directory: str | os.PathLike[str],
    contents: Mapping[str, str | bytes],
    is_replaced: Callable[[str], bool] = lambda _: False,
) -> None:
    """Write `contents` (by file name) into `directory`, which is made if need be; then remove its other files whose name
    `is_replaced` by these.

    All files are written beside their places first and moved there only when every one is complete, so that a full disk
    or an interruption leaves the old files. InputError, before anything is moved, if the directory cannot be written or has a
    directory in the place of a file.
    """
    target = Path(directory)
    written: list[tuple[str, Path]] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in contents:
            if (target / name).is_dir():
                raise InputError(
                    f"cannot write {target / name}, which is a directory: move it, or choose another place"
                )
        for name, content in contents.items():
            handle, temporary = tempfile.mkstemp(dir=target, prefix=f".{name}.")
            written.append((temporary, target / name))
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            os.chmod(temporary, 0o644)
        while written:
            os.replace(*written[0])
            written.pop(0)
        for old in list(target.iterdir()):
            if old.name not in contents and is_replaced(old.name) and (old.is_file() or old.is_symlink()):
                old.unlink()
    except OSError as error:
        raise InputError(f"cannot write to {target} ({error.strerror}): choose another directory") from error
    finally:
        for temporary, _ in written:
            os.unlink(temporary)


def read_json(path: str | os.PathLike[str], what: str, remedy: str) -> Any:
    """The JSON data in `path`; InputError saying that `what` cannot be read, and why, with the `remedy`."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {what} {path} ({error.strerror}): check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not {what} (not a text file): {remedy}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is truncated or not JSON (line {error.lineno}: {error.msg}): {remedy}") from error
    except ValueError as error:  # Python reads no number of more than 4,300 digits
        raise InputError(f"{path} is not {what} (a number in it is too long): {remedy}") from error
    except RecursionError as error:
        raise InputError(f"{path} is not {what} (nested too deep): {remedy}") from error


def _lines(data: Any, depth: int) -> str:
    if not isinstance(data, dict | list | tuple) or not data:
        return _encode(data)
    if depth > 0 and len(line := _encode(data)) + depth <= LINE:
        return line
    if isinstance(data, dict):
        items = [f"{_encode(key)}: {_lines(value, depth + 1)}" for key, value in data.items()]
        brackets = "{}"
    else:
        items, brackets = [_lines(value, depth + 1) for value in data], "[]"
    margin = " " * (depth + 1)
    return brackets[0] + "\n" + ",\n".join(margin + item for item in items) + "\n" + " " * depth + brackets[1]
