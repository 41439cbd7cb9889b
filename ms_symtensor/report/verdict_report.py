"""What MindSpore's compiler said, for people and for programs."""

from typing import TYPE_CHECKING, Any

from ms_symtensor.program.program import UNKNOWN_B
from ms_symtensor.report.text import seconds, share, size, table

if TYPE_CHECKING:  # plans are reported without what talks to the compiler
    from ms_symtensor.bridge.judge.audit import Audit
    from ms_symtensor.bridge.judge.comparison import Comparison
    from ms_symtensor.bridge.judge.verify import Verdict

SHOWN = 20
"""Rows of long lists that are printed; JSON has them all."""


def verdict_json(verdict: "Verdict") -> dict[str, Any]:
    """The verdict by the keys that `symtensor verify --json` promises; figures that do not exist are None."""
    found = verdict.comparison
    return {
        "accepted": verdict.accepted,
        "reason": verdict.reason,
        "gradients_synchronised": verdict.synchronised,
        "unsynchronised": list(verdict.unsynchronised),
        "collectives": {
            "predicted": found and found.predicted_collectives,
            "compiled": found and found.compiled_collectives,
            "equal": found is not None and found.equal,
            "differences": list(found.differences) if found else [],
            "of_zeros": found.of_zeros if found else 0,
            "predicted_B": found and found.predicted_B,
            "compiled_B": found and found.compiled_B,
        },
        "parameter_bytes": {
            "predicted": found and found.predicted_parameters_B,
            "compiled": found and found.compiled_parameters_B,
        },
        "activation_peak_B": {
            "predicted": found and _known(found.predicted_activations_B),
            "compiled": found and _known(found.compiled_activations_B),
        },
        **_order_json(found),
        "rank": verdict.rank,
        "mindspore": verdict.mindspore,
        "compile_time_s": verdict.compile_time_s,
    }


def verdict_text(verdict: "Verdict") -> str:
    """The verdict in a few lines."""
    head = f"MindSpore {verdict.mindspore}, rank {verdict.rank}, compiled in {seconds(verdict.compile_time_s)}"
    if not verdict.accepted:
        return f"{head}\n  rejected: {verdict.reason}"
    rows = [("gradients", "every one is summed over the ranks of its slice")] if verdict.trained else []
    if verdict.unsynchronised:
        names = ", ".join(verdict.unsynchronised[:SHOWN])
        rows = [("gradients", f"NOT summed over the ranks of their slice: {names}")]
    found = verdict.comparison
    if found is not None:
        equal = "equal in kind, ranks and bytes" if found.equal else f"{len(found.differences)} differences"
        equal += f", but for {found.of_zeros} of zeros" if found.of_zeros else ""
        rows += [
            ("collectives", f"{found.predicted_collectives} predicted, {found.compiled_collectives} compiled: {equal}"),
            ("parameters", _pair(found.predicted_parameters_B, found.compiled_parameters_B)),
            ("activations", _activations(found)),
        ]
        if found.predicted_order or found.compiled_order:
            rows.append(("order of gathers", _order(found)))
    lines = [head, table([("program", "accepted"), *rows])]
    if verdict.reason:
        lines.append(f"  {verdict.reason}")
    if found is not None:
        lines += [f"    {difference}" for difference in found.differences[:SHOWN]]
        lines += [f"    … and {len(found.differences) - SHOWN} more (--json)"] if len(found.differences) > SHOWN else []
    lines.append("  verified" if verdict.passed else "  NOT verified")
    return "\n".join(lines)


def audit_json(audit: "Audit") -> dict[str, Any]:
    """`verdict_json`, and `costs`: the collectives of each operator, with predicted seconds, the most expensive first."""
    return verdict_json(audit.verdict) | {
        "device_num": audit.device_num,
        "cluster": audit.cluster,
        "without_strategy": list(audit.without_strategy),
        "costs": [
            {
                "operator": c.operator,
                "kind": c.kind,
                "phase": c.phase,
                "ranks": list(c.ranks),
                "count": c.count,
                "size_B": _known(c.size_B),
                "time_s": None if c.size_B == UNKNOWN_B else c.time_s,
            }
            for c in audit.costs
        ],
    }


def audit_text(audit: "Audit") -> str:
    """The verdict, and, where the program is predicted, a table of what the strategies cost."""
    if audit.verdict.comparison is None:
        return verdict_text(audit.verdict)
    lines = [verdict_text(audit.verdict), ""]
    total_s = sum(c.time_s for c in audit.costs)
    lines.append(
        f"Communication of a step: {seconds(total_s)} predicted on {audit.device_num} devices of {audit.cluster}"
    )
    rows = [
        (
            c.operator,
            c.phase,
            c.kind,
            str(len(c.ranks)),
            str(c.count),
            "at run time" if c.size_B == UNKNOWN_B else size(c.size_B),
            "unknown" if c.size_B == UNKNOWN_B else seconds(c.time_s),
            share(c.time_s, total_s),
        )
        for c in audit.costs[:SHOWN]
    ]
    if rows:
        head = ("operator or parameter", "phase", "collective", "ranks", "count", "bytes each", "time of all", "")
        lines.append(table(rows, head, right=(3, 4, 5, 6, 7)))
    if len(audit.costs) > SHOWN:
        rest_s = sum(c.time_s for c in audit.costs[SHOWN:])
        lines.append(f"  … and {len(audit.costs) - SHOWN} more, {seconds(rest_s)} together (--json)")
    if audit.without_strategy:
        lines += ["", "Without a strategy, so that MindSpore cuts their leading dim by all devices:"]
        lines += [f"  {name}" for name in audit.without_strategy[:SHOWN]]
    return "\n".join(lines)


def _order_json(found: "Comparison | None") -> dict[str, Any]:
    """Which gathers wait for which, where MindSpore is told an order."""
    if found is None or not (found.predicted_order or found.compiled_order):
        return {}
    return {
        "gather_order": {
            "predicted": len(found.predicted_order),
            "compiled": len(found.compiled_order),
            "equal": found.predicted_order == found.compiled_order,
        }
    }


def _order(found: "Comparison") -> str:
    predicted, compiled = set(found.predicted_order), set(found.compiled_order)
    numbers = f"{len(found.predicted_order)} predicted control edges, {len(found.compiled_order)} compiled"
    if predicted == compiled:
        return f"{numbers}: equal pair by pair"
    first = min(predicted ^ compiled)
    return f"{numbers}: NOT equal, such as {first[1]} behind {first[0]}"


def _activations(found: "Comparison") -> str:
    if UNKNOWN_B in (found.predicted_activations_B, found.compiled_activations_B):
        return "not compared: some sizes are known at run time only"
    apart = abs(found.predicted_activations_B - found.compiled_activations_B)
    pair = _pair(found.predicted_activations_B, found.compiled_activations_B)
    return pair + f" ({share(apart, found.compiled_activations_B) or '0 %'} apart)"


def _known(size_B: int) -> int | None:
    return None if size_B == UNKNOWN_B else size_B


def _pair(predicted_B: int, compiled_B: int) -> str:
    return f"{size(predicted_B)} predicted, {size(compiled_B)} compiled"
