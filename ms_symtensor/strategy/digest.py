"""Digests: short names of content, equal only where all of the content is.

Of a plan: `of_data(file.to_json(plan))`; of a cluster: `of_data(to_content(cluster))`.
"""

import hashlib
import json
from typing import Any

from ms_symtensor.files.writing import encoded
from ms_symtensor.strategy.writing import json_text

SEAL = "sha256"


def of_content(content: bytes | str) -> str:
    """SHA-256 of `content` (a text: as UTF-8), 64 hexadecimal digits."""
    return hashlib.sha256(encoded(content)).hexdigest()


def of_data(data: Any) -> str:
    """The digest of plain JSON data, whatever the order of its keys. ValueError for numbers that JSON does not have."""
    return of_content(json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False))


def sealed(data: dict[str, Any]) -> str:
    """`data` as JSON, with its own digest under `sha256`."""
    return json_text(data | {SEAL: of_data(data)})


def is_sealed(text: bytes | str) -> bool:
    """Whether `text` is, in every byte, what `sealed` made of some data."""
    try:
        data = json.loads(text)
        return isinstance(data, dict) and text in (
            made := sealed({name: value for name, value in data.items() if name != SEAL}),
            made.encode(),
        )
    except (ValueError, RecursionError):
        return False
