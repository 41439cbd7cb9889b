"""What the options of the command line say, read from their text."""

import math
import re
from collections.abc import Sequence

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.overlap import PREFIX, require_known
from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.limits import Limits, limits_of
from ms_symtensor.search.constraints.request import GIB, free_B

_GAP = re.compile(r"(\d+(?:\.\d*)?|\.\d+) *(%)?")
_MARGIN = re.compile(r"(\d+(?:\.\d*)?|\.\d+) *(%|GiB)?")


def limits(fix: Sequence[str], most: Sequence[str]) -> Limits:
    """What --fix and --max say, NAME=VALUE each."""
    return limits_of(_pairs(fix), _pairs(most))


def with_overlap(fix: Sequence[str], hide: str) -> tuple[list[str], str]:
    """--fix without `overlap.NAME=yes`, and --hide with it: overlap settings are kept among what is hidden.

    Errors: InputError for another value than yes or no, and for a setting that is not modelled.
    """
    kept, words = [], [word for word in hide.split(",") if word.strip()]
    for text in fix:
        if not text.strip().startswith(PREFIX):
            kept.append(text)
            continue
        ((name, value),) = _pairs([text])
        require_known([name.removeprefix(PREFIX)])
        if value not in ("yes", "no"):
            raise InputError(f"{text!r}: give {name}=yes or {name}=no")
        words += [name] if value == "yes" else []
    return kept, ",".join(words)


def memory_limit_B(cluster: Cluster, limit_GiB: float | None, margin: str | None) -> int:
    """Bytes of a device that a plan may use: the limit or what the cluster's devices have, less the margin, `10%` or GiB; with
    neither less `KEPT_FREE`.

    Errors: InputError for a limit of less than a byte or without end, for a margin that is neither, or leaves nothing.
    """
    if limit_GiB is not None and not 1 <= limit_GiB * GIB < math.inf:
        raise InputError(f"--memory-limit is {limit_GiB:g}: give a number of GiB above 0")
    whole_B = cluster.device.hbm_usable_B if limit_GiB is None else limit_GiB * GIB
    if margin is None:
        return int(whole_B) if limit_GiB is not None else free_B(cluster)
    read = _MARGIN.fullmatch(margin.strip())
    if read is None:
        raise InputError(f"--memory-margin is {margin!r}: give a share such as 10%, or GiB such as 4")
    number = float(read[1])
    left_B = whole_B * (1 - number / 100) if read[2] == "%" else whole_B - number * GIB
    if left_B <= 0:
        raise InputError(f"--memory-margin is {margin}: nothing is left of {whole_B / GIB:.1f} GiB")
    return int(left_B)


CERTIFIED = 0.02
"""empirical: plans are certified to two percent where nothing else is asked for; predictions are off by ten."""


def gap(certify: bool, text: str | None) -> float | None:
    """How far from the optimum a certified plan may be, a fraction, of --gap `2%` or `0.02`; None: no certificate is asked for.

    Errors: InputError for a gap without --certify, or one that is no share.
    """
    if text is None:
        return CERTIFIED if certify else None
    if not certify:
        raise InputError(f"--gap is {text} without --certify: add it, or leave --gap out")
    read = _GAP.fullmatch(text.strip())
    found = math.inf if read is None else float(read[1]) / (100 if read[2] else 1)
    if found >= 1:
        raise InputError(f"--gap is {text!r}: give a share such as 2%, or a fraction such as 0.02")
    return found


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for text in texts:
        name, _, value = text.rpartition("=")
        if not name.strip() or not value.strip():
            raise InputError(f"{text!r}: give NAME=VALUE, such as pipeline_stages=4")
        found.append((name.strip(), value.strip()))
    return found
