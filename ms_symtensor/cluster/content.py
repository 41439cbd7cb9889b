"""A cluster as the content of a cluster file: what `load.from_content` reads back."""

from dataclasses import fields
from enum import Enum
from typing import Any

from ms_symtensor.cluster.device import Device
from ms_symtensor.cluster.host import Host
from ms_symtensor.cluster.topology import Cluster, CollectiveRules, Level, Source


def to_content(cluster: Cluster) -> dict[str, Any]:
    """Everything that a file says of `cluster`: plain data, every number with its source."""
    writer = _Writer(dict(cluster.sources))
    content = {
        "name": cluster.name,
        "description": cluster.description,
        "device": writer.entries(cluster.device, "device"),
        "levels": [writer.entries(level, f"levels[{index}]") for index, level in enumerate(cluster.levels)],
        "collectives": writer.entries(cluster.rules, "collectives"),
    }
    if cluster.warning:
        content["warning"] = cluster.warning
    return content | ({} if cluster.host is None else {"host": writer.entries(cluster.host, "host")})


class _Writer:
    def __init__(self, sources: dict[str, Source]) -> None:
        self.sources = sources

    def entries(self, of: Device | Level | CollectiveRules | Host, place: str) -> dict[str, Any]:
        """What has a source with that, names and kinds as they are; what the file left out is left out."""
        found: dict[str, Any] = {}
        for name in (field.name for field in fields(of)):
            value, source = getattr(of, name), self.sources.get(f"{place}.{name}")
            plain = value.value if isinstance(value, Enum) else value
            if source is not None:
                found[name] = self._sourced(plain, source)
            elif isinstance(plain, str):
                found[name] = plain
        return found

    def _sourced(self, value: Any, source: Source) -> dict[str, Any]:
        range_ = {} if source.low is None else {"range": [source.low, source.high]}
        return {"value": value, **range_, "source": source.text}
