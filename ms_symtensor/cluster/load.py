"""Clusters from YAML files: the ones of this folder by name, a user's own by path."""

import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ms_symtensor.algebra import symbols
from ms_symtensor.cluster.bounded_yaml import load_yaml
from ms_symtensor.cluster.device import Device
from ms_symtensor.cluster.host import Host
from ms_symtensor.cluster.topology import Cluster, CollectiveRules, GatherOrder, Level, LevelKind, Library, Source
from ms_symtensor.errors import InputError

SUFFIXES = (".yaml", ".yml")
"""Of files, which tell them from names."""
_FOLDER = Path(__file__).parent
FRACTIONS = (
    "cube_efficiency",
    "cube_fp32_efficiency",
    "step_efficiency",
    "attention_efficiency",
    "vector_efficiency",
    "hbm_efficiency",
    "read_efficiency",
    "efficiency",
)
_MAY_BE_ZERO = (
    "op_overhead_s",
    "collective_overhead_s",
    "host_overhead_s",
    "communicator_B",
    "wave_elements",
    "pipeline_depth",
    "attention_head_dim",
    "attention_wave_rows",
    "attention_fill_keys",
    "latency_s",
    "reduce_s_per_B",
    "pipeline_min_slice_B",
    "pipeline_all_reduce_min_slice_B",
)
_UNUSED = ("rank_skew_s",)
"""Entries of a device that files may have, and that no formula reads."""
_MOST_RANKS = (1 << 31) - 1
"""Communication libraries number ranks with 32 bits."""
_LEAST, _MOST = 1e-24, 1e24
"""Of numbers in SI units: products and quotients of several are numbers still. A device of 2024 has 1e15 FLOP per second."""
_Choice = TypeVar("_Choice", LevelKind, GatherOrder, Library)


def known_clusters() -> tuple[str, ...]:
    """Names of the clusters that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load(name_or_path: str | os.PathLike[str]) -> Cluster:
    """A cluster by its name or from a file.

    atlas_800t_a2.yaml in ms_symtensor/cluster shows every entry; each number stands with its source. A file with
    `based_on: NAME` gives only what differs from that known cluster.

    Args:
        name_or_path: A known name, or the path of a YAML file (with its suffix .yaml or .yml).

    Returns:
        The cluster: devices, links, memory, each in the unit that its name ends with.

    Raises:
        InputError: The name is unknown (the message lists the known ones), the file cannot be read, or an entry is missing,
            unknown, or no such value.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise InputError(
            f"cluster is {name_or_path!r}: give a name ({', '.join(known_clusters())}) or the path of a file"
        )
    path = Path(name_or_path)
    if (name := os.fspath(name_or_path)) in known_clusters():
        return _load_known(name)
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"unknown cluster {name!r}; known: {', '.join(known_clusters())}; "
            f"or give the path of your own file (*.yaml)"
        )
    return _read(path)


def cluster_of(given: Cluster | str | os.PathLike[str]) -> Cluster:
    """`given` itself, or the cluster of that name or path (`load`). InputError for what is none of these."""
    return given if isinstance(given, Cluster) else load(given)


def from_content(content: Any, origin: str) -> Cluster:
    """The cluster that the content of a file describes. InputError, naming `origin`, if it describes none."""
    return _Reader(origin).cluster(content)


def is_known(cluster: Cluster) -> bool:
    """Whether its name alone stands for `cluster`: it is one of those that come with the package, unchanged."""
    return cluster.name in known_clusters() and _load_known(cluster.name) == cluster


@lru_cache
def _load_known(name: str) -> Cluster:
    return _read(_FOLDER / f"{name}.yaml")


def _read(path: Path) -> Cluster:
    return from_content(content_of(path), str(path))


def content_of(path: Path) -> Any:
    """What the file says, with what it takes over from the cluster that it is based on. InputError if it cannot be read."""
    content = load_yaml(path)
    if not isinstance(content, dict) or "based_on" not in content:
        return content
    name, changed = content["based_on"], {key: value for key, value in content.items() if key != "based_on"}
    if name not in known_clusters():
        raise InputError(
            f"cluster file {path}: based_on: expected one of {', '.join(known_clusters())}, found {_shown(name)}"
        )
    return _changed(content_of(_FOLDER / f"{name}.yaml"), changed)


def _changed(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the entries of `changes` in place of its own; mappings without a value of their own are gone into."""
    merged = dict(base)
    for key, value in changes.items():
        inside = isinstance(value, dict) and "value" not in value and isinstance(base.get(key), dict)
        merged[key] = _changed(base[key], value) if inside else value
    return merged


class _Reader:
    """Reads one file; keeps its name for errors, and the sources of the numbers it meets."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.sources: dict[str, Source] = {}

    def cluster(self, content: Any) -> Cluster:
        top = self._mapping(
            content, "", ("name", "description", "device", "levels", "collectives"), ("host", "warning")
        )
        device = self._device(top["device"])
        levels = self._levels(top["levels"])
        rules = self._rules(top["collectives"])
        host = self._host(top["host"]) if "host" in top else None
        return Cluster(
            name=self._text(top["name"], "name"),
            description=self._text(top["description"], "description"),
            device=device,
            levels=levels,
            rules=rules,
            sources=tuple(self.sources.items()),
            host=host,
            warning=self._text(top["warning"], "warning") if "warning" in top else "",
        )

    def _host(self, content: Any) -> Host:
        entries = self._mapping(content, "host", tuple(field.name for field in fields(Host)))
        return Host(
            self._number(entries["bandwidth_Bps"], "host.bandwidth_Bps"),
            self._number_or_none(entries["memory_B"], "host.memory_B"),
        )

    def _device(self, content: Any) -> Device:
        names = tuple(field.name for field in fields(Device) if field.default is MISSING)
        optional = tuple(field.name for field in fields(Device) if field.default is not MISSING)
        entries = self._mapping(content, "device", names, (*optional, *_UNUSED))
        given = [name for name in (*names, *optional) if name in entries and name != "name"]
        numbers = {name: self._number(entries[name], f"device.{name}") for name in given}
        device = Device(name=self._text(entries["name"], "device.name"), **numbers)
        if device.hbm_usable_B > device.hbm_capacity_B:
            raise self._error("device.hbm_usable_B", "at most device.hbm_capacity_B", device.hbm_usable_B)
        return device

    def _levels(self, content: Any) -> tuple[Level, ...]:
        if not isinstance(content, list) or not content:
            raise self._error("levels", "a list of at least one level, innermost first", content)
        levels: list[Level] = []
        for index, entry in enumerate(content):
            where = f"levels[{index}]"
            entries = self._mapping(entry, where, tuple(field.name for field in fields(Level)))
            name = self._text(entries["name"], f"{where}.name")
            if not name.isidentifier() or any(level.name == name for level in levels):
                raise self._error(f"{where}.name", "a name of letters, digits and _, different for each level", name)
            try:
                symbols.bandwidth(name)
            except ValueError as error:
                raise InputError(f"cluster file {self.file}: {where}.name: choose another name, {error}") from None
            ranks = self._ranks(entries["ranks"], f"{where}.ranks")
            if ranks is None and index < len(content) - 1:
                raise self._error(f"{where}.ranks", "a number; only the outermost level may be unbounded (null)", None)
            inner = levels[-1].ranks if levels else 1
            if ranks is not None and inner is not None and (ranks <= inner or ranks % inner):
                raise self._error(f"{where}.ranks", f"a multiple of the {inner} ranks of the level inside", ranks)
            levels.append(
                Level(
                    name=name,
                    ranks=ranks,
                    kind=self._choice(LevelKind, entries["kind"], f"{where}.kind"),
                    bandwidth_Bps=self._number(entries["bandwidth_Bps"], f"{where}.bandwidth_Bps"),
                    efficiency=self._number(entries["efficiency"], f"{where}.efficiency"),
                    latency_s=self._number(entries["latency_s"], f"{where}.latency_s"),
                )
            )
        return tuple(levels)

    def _rules(self, content: Any) -> CollectiveRules:
        entries = self._mapping(content, "collectives", tuple(field.name for field in fields(CollectiveRules)))
        order = "collectives.gather_order"
        return CollectiveRules(
            library=self._choice(
                Library, self._sourced(entries["library"], "collectives.library"), "collectives.library"
            ),
            gather_order=self._choice(GatherOrder, self._sourced(entries["gather_order"], order), order),
            pipeline_min_slice_B=self._number_or_none(
                entries["pipeline_min_slice_B"], "collectives.pipeline_min_slice_B"
            ),
            pipeline_all_reduce_min_slice_B=self._number_or_none(
                entries["pipeline_all_reduce_min_slice_B"], "collectives.pipeline_all_reduce_min_slice_B"
            ),
        )

    def _mapping(
        self, content: Any, where: str, names: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        place = where or "the file"
        if not isinstance(content, dict):
            raise self._error(place, f"the entries {', '.join(names)}", content)
        for name in content:
            if name not in (*names, *optional):
                expected = _nearest(name, (*names, *optional))
                raise InputError(
                    f"cluster file {self.file}: {place}: unknown entry {_shown(name)}; expected {expected}"
                )
        for name in names:
            if name not in content:
                raise InputError(
                    f"cluster file {self.file}: {place}: entry {name!r} is missing; expected {_hint(name)}"
                )
        return content

    def _sourced(self, entry: Any, where: str) -> Any:
        """The value of `{value: …, source: …, range: [low, high]}`, whose source is noted."""
        if not isinstance(entry, dict) or not {"value", "source"} <= set(entry) <= {"value", "source", "range"}:
            raise self._error(where, "{value: …, source: …} and, if you like, range: [low, high]", entry)
        bounds: list[float | None] = [None, None]
        if "range" in entry:
            if not isinstance(entry["range"], list) or len(entry["range"]) != 2:
                raise self._error(f"{where}.range", "[low, high]", entry["range"])
            bounds = [self._float(bound, f"{where}.range") for bound in entry["range"]]
        self.sources[where] = Source(self._text(entry["source"], f"{where}.source"), *bounds)
        return entry["value"]

    def _number(self, entry: Any, where: str) -> float:
        value = self._float(self._sourced(entry, where), f"{where}.value")
        name = where.rsplit(".", 1)[-1]
        if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            raise self._error(f"{where}.value", f"{_hint(name)}", value)
        if value and not _LEAST <= value <= _MOST:
            raise self._error(f"{where}.value", f"{_LEAST:g} to {_MOST:g}, as every device has", value)
        if name in FRACTIONS and value > 1:
            raise self._error(f"{where}.value", "a fraction between 0 and 1", value)
        return value

    def _number_or_none(self, entry: Any, where: str) -> float | None:
        value = self._sourced(entry, where)
        return None if value is None else self._number(entry, where)

    def _ranks(self, entry: Any, where: str) -> int | None:
        value = self._sourced(entry, where)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 < value <= _MOST_RANKS):
            return value
        raise self._error(f"{where}.value", "a whole number above 1, or null for an unbounded outermost level", value)

    def _float(self, value: Any, where: str) -> float:
        # YAML 1.1 takes 3e8 for a text, as it has neither a point nor a sign; nobody who writes it means a text.
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self._error(where, "a number", value)
        return number

    def _text(self, value: Any, where: str) -> str:
        if not isinstance(value, str) or not value.strip() or not _is_writable(value):
            raise self._error(where, "a text", value)
        return " ".join(value.split())

    def _choice(self, choices: type[_Choice], value: Any, where: str) -> _Choice:
        try:
            return choices(value)
        except ValueError:
            raise self._error(where, "one of " + ", ".join(c.value for c in choices), value) from None

    def _error(self, where: str, expected: str, found: Any) -> InputError:
        return InputError(f"cluster file {self.file}: {where}: expected {expected}, found {_shown(found)}")


def _shown(found: Any) -> str:
    try:
        shown = repr(found)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number that is too long"
    return shown if len(shown) <= 60 else shown[:57] + "…"


def _is_writable(text: str) -> bool:
    """Whether `text` can be written again: it has no halves of a character (surrogates)."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


def _hint(name: str) -> str:
    """What an entry holds, read off the unit in its name."""
    units = {
        "_FLOPs": "FLOP per second",
        "_Bps": "bytes per second",
        "_s_per_B": "seconds per byte",
        "_s": "seconds",
        "_B": "bytes",
        "efficiency": "a fraction above 0 and at most 1",
    }
    for suffix, unit in units.items():
        if name.endswith(suffix):
            zero = "0 or more" if name in _MAY_BE_ZERO else "above 0"
            return unit if suffix == "efficiency" else f"{{value: a number of {unit}, {zero}; source: …}}"
    return {"ranks": "{value: ranks in one domain of the level; source: …}"}.get(name, f"a value for {name}")


def _nearest(name: object, known: tuple[str, ...]) -> str:
    """What `name` may have been meant for, or the first of what is `known`."""
    close = get_close_matches(str(name).strip()[:80], known, n=3)
    return " or ".join(close) if close else ", ".join(known[:8]) + (f" or {len(known) - 8} more" if known[8:] else "")
