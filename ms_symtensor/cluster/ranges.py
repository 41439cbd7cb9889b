"""Values of a cluster that lie outside the range that its own file states for them."""

from ms_symtensor.cluster.topology import Cluster


def outside_ranges(cluster: Cluster) -> str:
    """The first such value with its range, and how many there are more: `device.l2_B is 3e+08, outside its range 1e+08 to 2e+08`.

    "" if there is none. Ranges say what is known of a number, not what is possible: such a value counts all the same.
    """
    found = []
    for place, source in cluster.sources:
        value = _value(cluster, place)
        if source.low is None or source.high is None or not isinstance(value, int | float):
            continue
        if not source.low <= value <= source.high:
            found.append(f"{place} is {value:g}, outside its range {source.low:g} to {source.high:g}")
    more = f" (and {len(found) - 1} more)" if found[1:] else ""
    return f"{found[0]}{more}: correct the value or the range" if found else ""


def _value(cluster: Cluster, place: str) -> object:
    """What stands at `place`, as sources name it: `device.l2_B`, `levels[1].latency_s`, `collectives.library`."""
    part, _, name = place.rpartition(".")
    if part.startswith("levels["):
        return getattr(cluster.levels[int(part[len("levels[") : -1])], name)
    return getattr({"device": cluster.device, "collectives": cluster.rules, "host": cluster.host}[part], name)
