"""A plan's traffic, for people, for programs, and as tables."""

from typing import Any

from ms_symtensor.files.writing import csv_of
from ms_symtensor.report.text import seconds, share, size, table
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.traffic.exchanged import Sort
from ms_symtensor.traffic.fabric import Link
from ms_symtensor.traffic.plan_traffic import PlanTraffic
from ms_symtensor.traffic.rank_order import RankOrder

SHOWN = 8
MOST_NODES = 64
"""Of more nodes JSON has no table of bytes between them; traffic.csv has them rank by rank."""


def traffic_json(plan: Plan, found: PlanTraffic, order: RankOrder | None = None) -> dict[str, Any]:
    """The figures by key; sizes in bytes of a step, times in seconds. With an `order` ranks are called by where they run."""
    return {
        "model": plan.model,
        "cluster": plan.cluster,
        "device_num": found.device_num,
        "node_ranks": found.node_size,
        "total_B": sum(found.of.total_B.values()),
        "pairs": len(found.of.total_B),
        **({} if order is None else {"rank_order": {**_order(order), "positions": list(order.positions)}}),
        "collectives_of_unknown_size": found.of.unknown,
        "verified": [vars(one) for one in found.verified],
        "sorts": [{**sort._asdict(), "size_B": size_B} for sort, size_B in _sorts(found)],
        "collectives": [
            {**one._asdict(), "ranks": list(one.ranks)} for one in found.messages if one.ranks[0] in _first_ranks(found)
        ],
        "leaves": None if found.leaves is None else {**vars(found.leaves), "uplinks": found.leaves.uplinks},
        "most_loaded_link_s": found.most_loaded_s,
        "most_loaded_link_rank_order_s": found.rank_order_s,
        "most_loaded_links": [
            {**_link(link), "size_B": found.placed_B[link], "time_s": time_s} for link, time_s in _loaded(found)
        ],
        "placement": {
            "leaf_of_node": list(found.placed.leaf_of),
            "node_of_server": list(found.node_at),
            "uplinks_B": found.placed.most_B,
            "uplinks_rank_order_B": found.placed.rank_order_B,
            "uplinks_bound_B": found.placed.bound_B,
            "is_optimal": found.placed.is_exact,
        },
        **({"node_B": found.between_B.tolist()} if len(found.between_B) <= MOST_NODES else {}),
        "collisions": [{**vars(one), "sort": one.sort._asdict()} for one in found.collisions],
    }


def _order(order: RankOrder) -> dict[str, Any]:
    axes = [vars(axis) for axis in order.axes]
    return {"axes": axes, "step_s": order.step_s, "rank_order_s": order.rank_order_s, "is_exact": order.is_exact}


def _order_text(order: RankOrder) -> str:
    axes = " x ".join(f"{axis.name} {axis.size} (of stride {axis.stride})" for axis in order.axes)
    if order.step_s >= order.rank_order_s:
        return f"Order of axes, slowest links first: {axes}, as in rank order: no other has a shorter step"
    return (
        f"Order of axes, slowest links first: {axes}\n  step {seconds(order.step_s)}, in rank order"
        f" {seconds(order.rank_order_s)}: {100 * order.gain:.1f} % shorter by the rank table"
    )


def traffic_text(plan: Plan, found: PlanTraffic, order: RankOrder | None = None) -> str:
    """The figures on a page."""
    total_B = sum(found.of.total_B.values())
    rows = [(*sort, size(round(size_B)), share(size_B, total_B)) for sort, size_B in _sorts(found)]
    parts = [
        f"{plan.model}: {found.device_num} devices of {plan.cluster}, {size(round(total_B))} between {len(found.of.total_B)}"
        " pairs of ranks in a step",
        "Bytes by phase and algorithm\n" + table(rows, ("phase", "collective", "algorithm", "bytes", ""), right=(3, 4)),
    ]
    loaded = [(_named(link), size(round(found.placed_B[link])), seconds(time_s)) for link, time_s in _loaded(found)]
    if loaded:
        parts.append("Most loaded links\n" + table(loaded, ("link", "bytes", "time at its rate"), right=(1, 2)))
    if order is not None:
        parts.append(_order_text(order))
    parts.append(_placement_text(found))
    if found.collisions:
        crossing = [
            (
                *one.sort,
                str(one.flows),
                str(one.uplinks),
                f"{100 * one.sharing:.0f} %",
                str(one.fullest),
                f"{one.slowdown:.1f}",
            )
            for one in found.collisions[:SHOWN]
        ]
        head = ("phase", "collective", "algorithm", "flows", "uplinks", "sharing", "fullest", "slower")
        parts.append("Collisions on the uplinks of a leaf (estimate)\n" + table(crossing, head, right=(3, 4, 5, 6, 7)))
    return "\n\n".join(parts)


def _placement_text(found: PlanTraffic) -> str:
    if found.leaves is None:
        return "Placement: rank order; no leaf switches were told of (--topology leaf=RANKS,oversubscription=RATIO)"
    best = found.placed
    how = "optimal" if best.is_exact else f"at least {size(round(best.bound_B))} in any"
    lines = [
        f"Placement: {size(round(best.most_B))} over the most loaded uplinks, {size(round(best.rank_order_B))} in rank order"
        f" ({how})"
    ]
    leaves: dict[int, list[int]] = {}
    for node, leaf in enumerate(best.leaf_of):
        leaves.setdefault(leaf, []).append(node)
    lines += [f"  leaf {leaf}: nodes {', '.join(map(str, nodes))}" for leaf, nodes in list(leaves.items())[: 2 * SHOWN]]
    return "\n".join(lines)


def pairs_csv(found: PlanTraffic) -> str:
    """A row for every two ranks and every sort of exchange."""
    rows = (
        (source, target, *sort, repr(size_B))
        for sort, pairs in found.of.pairs.items()
        for (source, target), size_B in pairs.items()
    )
    return csv_of(("source", "target", "phase", "collective", "algorithm", "size_B"), rows)


def links_csv(found: PlanTraffic) -> str:
    """A row for every link, as placed."""
    rows = ((*link, repr(found.placed_B[link]), repr(time_s)) for link, time_s in found.link_s.items())
    return csv_of(("level", "link", "from", "to", "size_B", "time_s"), rows)


def _first_ranks(found: PlanTraffic) -> set[int]:
    return {one.rank for one in found.verified}


def _sorts(found: PlanTraffic) -> list[tuple[Sort, float]]:
    sums = {sort: sum(pairs.values()) for sort, pairs in found.of.pairs.items()}
    return sorted(sums.items(), key=lambda item: -item[1])


def _loaded(found: PlanTraffic) -> list[tuple[Link, float]]:
    """The most loaded link of every kind and level first, then others."""
    ordered = sorted(found.link_s.items(), key=lambda item: (-item[1], item[0]))
    first: dict[tuple[str, str], tuple[Link, float]] = {}
    for link, time_s in ordered:
        first.setdefault(link[:2], (link, time_s))
    return list(first.values())[:SHOWN]


def _link(link: Link) -> dict[str, Any]:
    return dict(zip(("level", "link", "from", "to"), link, strict=True))


def _named(link: Link) -> str:
    level, kind, one, other = link
    if kind in ("uplinks", "downlinks"):
        return f"{level} {kind} of leaf {one}"
    return f"{level} port of rank {one}, {kind}" if kind in ("up", "down") else f"{level} link {one} to {other}"
