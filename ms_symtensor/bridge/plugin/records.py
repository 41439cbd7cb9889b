"""What every rank says of itself before a compile, and in words how ranks differ."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

from ms_symtensor.strategy.digest import of_content, of_data

RECORD_B = 8192
"""Bytes of a record: what is in it is cut to lengths that fit."""
_VALUE_CHARACTERS, _FAILURE_CHARACTERS = 60, 240
_SHOWN_VALUES = 3
_NOTHING = "nothing"


@dataclass(frozen=True)
class Record:
    """What one rank says: the `facts` that must be the same on all, or the `failure` for which it stops; `origin`: where its
    plan is from.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    origin: str = ""

    @property
    def digest(self) -> str:
        """Equal for ranks that go on together."""
        return of_data([list(self.facts.items()), self.failure])

    def to_bytes(self) -> bytes:
        """`RECORD_B` bytes, values cut to what people are shown."""
        short = {name: _cut(value, _VALUE_CHARACTERS) for name, value in self.facts.items()}
        data = asdict(self) | {
            "facts": short, "failure": self.failure[:_FAILURE_CHARACTERS], "origin": _cut(self.origin, _VALUE_CHARACTERS),
        }  # fmt: skip
        return json.dumps(data, ensure_ascii=False).encode().ljust(RECORD_B)


def from_bytes(content: bytes) -> Record:
    """The record behind `to_bytes`."""
    return Record(**json.loads(content))


def difference(records: Sequence[Record]) -> str:
    """How the ranks, whose `records` are in their order, differ: the first field, who has what, and what to do."""
    failed = [rank for rank, record in enumerate(records) if record.failure]
    if failed:
        same = [rank for rank in failed if records[rank].failure == records[failed[0]].failure]
        return f"{_ranks(same)} stopped: {records[failed[0]].failure}"
    names = {name: None for record in records for name in record.facts}
    differing = [name for name in names if len({record.facts.get(name, _NOTHING) for record in records}) > 1]
    rest = f"; also differ: {', '.join(differing[1:])}" if differing[1:] else ""
    return (
        f"the ranks do not have the same plan: {_who_has_what(differing[0], records)}{rest}: give all ranks the same options,"
        " files and versions"
    )


def _who_has_what(name: str, records: Sequence[Record]) -> str:
    """`rank 2 has memory limit 40.0 GiB, ranks 0, 1, 3 have 58.0 GiB`: the fewest first."""
    ranks_by_value: dict[tuple[str, str], list[int]] = {}
    for rank, record in enumerate(records):
        ranks_by_value.setdefault((record.facts.get(name, _NOTHING), record.origin), []).append(rank)
    groups = sorted(ranks_by_value.items(), key=lambda item: (len(item[1]), item[1]))
    origins = {record.origin for record in records}
    parts: list[str] = []
    for (value, origin), ranks in groups[:_SHOWN_VALUES]:
        where = f" ({origin})" if origin and len(origins) > 1 else ""
        what = f" {name}" if not parts else ""
        parts.append(f"{_ranks(ranks)}{where} {'has' if len(ranks) == 1 else 'have'}{what} {value}")
    if len(groups) > _SHOWN_VALUES:
        parts.append(f"others have others ({len(groups)} in all)")
    return ", ".join(parts)


def _ranks(ranks: Sequence[int]) -> str:
    """`rank 2`, `ranks 0, 1, 4 to 7`."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), key=lambda pair: pair[1] - pair[0])]
    shown = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    if len(shown) > 4:
        shown = [*shown[:3], f"… {ranks[-1]}"]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(shown)}"


def _cut(text: str, most: int) -> str:
    """`text`, or its beginning and its digest: texts that differ are shown as such."""
    if len(text) <= most:
        return text
    digest = of_content(text)[:8]
    return f"{text[: most - len(digest) - 3]}… ({digest})"
