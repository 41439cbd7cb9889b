"""How far the plan can be trusted: predicted, verified by the compiler, proved by a run; and what predictions were off by."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ms_symtensor.report.html.markup import Cell, Html, copied, element, folded, joined, number, section, table
from ms_symtensor.report.text import percent
from ms_symtensor.strategy.folder import PlanFolder
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.record import PROVED_FILE, VERIFIED_FILE, recorded

ACCURACY = Path(__file__).with_name("accuracy.json")
"""What `python -m benchmarks.validation --page` wrote last, as docs/results/validation.md has it."""
NOTHING = "not yet"


def badges(folder: PlanFolder) -> Html:
    """The three levels in three words."""
    verified, proved = recorded(folder, VERIFIED_FILE), recorded(folder, PROVED_FILE)
    marks = [
        ("predicted", True),
        (
            "verified" if verified is None or _is_verified(verified) else "NOT verified",
            verified and _is_verified(verified),
        ),
        ("proved" if proved is None or proved["equal"] else "NOT proved", proved and proved["equal"]),
    ]
    shown = [
        element(
            "span",
            f"{'✓' if holds else '✗' if 'NOT' in name else '○'} {name}",
            class_="badge " + ("yes" if holds else "bad" if "NOT" in name else "no"),
        )
        for name, holds in marks
    ]
    return element("p", *shown, class_="badges")


def trust_section(folder: PlanFolder, plan: Plan, place: str) -> Html:
    """What was checked, and published rows beside predictions."""
    rows: list[tuple[Cell, ...]] = [
        ("predicted", "step, memory and collectives, by formulas; no NPU was asked", ""),
        ("verified", *_verified(recorded(folder, VERIFIED_FILE), f"symtensor verify {place}")),
        ("proved", *_proved(recorded(folder, PROVED_FILE), f"symtensor prove {place}")),
    ]
    gap = plan.search.optimality_gap
    said = f"At most {percent(gap)} % above the optimum of this model." if gap > 1e-9 else "Optimal in this model."
    figures = json.loads(ACCURACY.read_text(encoding="utf-8"))["figures"]
    mine = [one for one in figures if one["cluster"] == plan.cluster]
    others = [one for one in figures if one["cluster"] != plan.cluster]
    head = element("h3", f"Predictions beside published measurements of {plan.cluster}")
    inside = [table(("level", "what was found", ""), rows, left=3), head]
    inside.append(_figures(mine) if mine else element("p", "No published rows of this cluster."))
    inside.append(folded("Other clusters", _figures(others)))
    return section("trust", "What was verified and proved", said, *inside)


def _is_verified(found: Mapping[str, Any]) -> bool:
    return bool(
        found["accepted"]
        and found["gradients_synchronised"]
        and found["collectives"]["equal"]
        and not found["files"]["differ"]
    )


def _verified(found: Mapping[str, Any] | None, command: str) -> tuple[Cell, Cell]:
    if found is None:
        return f"{NOTHING}: MindSpore's compiler has not been asked", copied(command, "copy command")
    each = found["collectives"]
    if not found["accepted"]:
        return f"MindSpore {found['mindspore']} rejects the plan: {found['reason']}", ""
    equal = "equal in kind, ranks and bytes" if each["equal"] else f"{len(each['differences'])} differences"
    if each["predicted"] is None or each["compiled"] is None:
        return f"MindSpore {found['mindspore']}: {equal}", "NOT verified"
    told = joined([
        element("span", f"MindSpore {found['mindspore']}: "), number(each["predicted"], f"{each['predicted']:,}"),
        element("span", " collectives predicted, "), number(each["compiled"], f"{each['compiled']:,}"),
        element("span", f" compiled: {equal}"),
    ])  # fmt: skip
    return told, "" if _is_verified(found) else "NOT verified"


def _proved(found: Mapping[str, Any] | None, command: str) -> tuple[Cell, Cell]:
    if found is None:
        return f"{NOTHING}: the program has not been run", copied(command, "copy command")
    if "logits_rel_error" in found:  # of the phases of serving
        each = {f"logits of {phase}": error for phase, error in found["logits_rel_error"].items()}
        each["caches"], of, ranks = (
            found["cache_rel_error_max"],
            f"{found['caches_checked']} caches",
            max(found["ranks"].values()),
        )
    else:
        each = {"loss": found["loss_rel_error"], "gradients": found["grad_rel_error_max"]}
        of, ranks = f"{found['parameters_checked']} parameters", found["ranks"]
    errors = [f"{name} {error:.1e}" if error is not None else f"{name} not finite" for name, error in each.items()]
    told = f"{ranks} processes beside one: relative error of {' and '.join(errors)}, {of}"
    return told, "" if found["equal"] else "NOT EQUAL"


def _figures(figures: list[dict[str, Any]]) -> Html:
    rows = [(one["data"], one["figure"], number(one["value"], f"{one['value']:g}"), one["bar"]) for one in figures]
    return table(("rows of", "figure", "value", "aim"), rows, left=2)
