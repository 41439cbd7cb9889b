"""Digests: short names of content, equal only where all of the content is.

Of a plan: `of_data(file.to_json(plan))`; of a cluster: `of_data(to_content(cluster))`.
"""

import hashlib
import json
from typing import Any


def of_content(content: bytes | str) -> str:
    """SHA-256 of `content` (a text: as UTF-8), 64 hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def of_data(data: Any) -> str:
    """The digest of plain JSON data, whatever the order of its keys. ValueError for numbers that JSON does not have."""
    return of_content(json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False))
