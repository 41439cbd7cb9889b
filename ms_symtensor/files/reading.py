"""What was read from a file, as data."""

import json
import os
import re
from pathlib import Path
from typing import Any

from ms_symtensor.errors import InputError

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""How JSON writes halves of the pairs that stand for one character: alone they are no text that can be written."""


def read_json(path: str | os.PathLike[str], what: str, remedy: str) -> Any:
    """The JSON data in the file `path`; InputError saying that `what` cannot be read, and why, with the `remedy`."""
    try:
        return parsed_json(Path(path).read_bytes(), path, what, remedy)
    except OSError as error:
        raise InputError(f"cannot read {what} {path} ({error.strerror}): check the path") from error


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text in the file `path`; InputError saying that `what` cannot be read, and why."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not {what} (not a text file): give another file") from error
    except OSError as error:
        raise InputError(f"cannot read {what} {path} ({error.strerror}): check the path") from error


def parsed_json(content: bytes, path: str | os.PathLike[str], what: str, remedy: str) -> Any:
    """The JSON data in `content`, that of the file `path`; InputError that it is not `what`, and why, with the `remedy`."""
    try:
        data = json.loads(content.decode("utf-8"))
        if _SURROGATE.search(content):
            json.dumps(data, ensure_ascii=False).encode()
        return data
    except UnicodeEncodeError as error:
        raise InputError(f"{path} is not {what} (half of a pair of surrogates in a text): {remedy}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not {what} (not a text file): {remedy}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is truncated or not JSON (line {error.lineno}: {error.msg}): {remedy}") from error
    except ValueError as error:  # Python reads no number of more than 4,300 digits
        raise InputError(f"{path} is not {what} (a number in it is too long): {remedy}") from error
    except RecursionError as error:
        raise InputError(f"{path} is not {what} (nested too deep): {remedy}") from error
