"""What a proof found, for people and for programs."""

from dataclasses import dataclass
from typing import Any

from ms_symtensor.bridge.proof.comparison import TOLERANCE
from ms_symtensor.bridge.proof.phases import PhaseProof
from ms_symtensor.bridge.proof.prove import Proof
from ms_symtensor.report.text import seconds, table

SHOWN = 20
"""Wrong parameters that are printed."""


@dataclass(frozen=True)
class Replayed:
    """The schedule of the plan's folder, replayed by the simulator; `why` it was not what the processes ran, "" where it was."""

    name: str
    placement: str
    step_s: float
    why: str = ""


def proof_json(proof: Proof, schedule: Replayed | None = None) -> dict[str, Any]:
    """The proof by the keys that `symtensor prove --json` promises; errors that are not finite are None."""
    return {
        "equal": proof.equal,
        "ranks": proof.ranks,
        "loss_rel_error": _finite(proof.loss_rel_error),
        "grad_rel_error_max": _finite(proof.worst.error),
        "worst_parameter": proof.worst.name,
        "parameters_checked": len(proof.parameters),
        "substitutions": list(proof.substitutions),
        **({"loss": proof.loss} if proof.loss else {}),
        "reduction": {name: list(sizes) for name, sizes in proof.reduction.items()},
        **({"schedule": _schedule(schedule)} if schedule is not None else {}),
        "seconds": proof.seconds,
    }


def _schedule(schedule: Replayed) -> dict[str, Any]:
    return {
        "schedule": schedule.name,
        "placement": schedule.placement,
        "step_time_s": schedule.step_s,
        "replayed": True,
        "executed": not schedule.why,
        "why_not_executed": schedule.why,
    }


def proof_text(proof: Proof, schedule: Replayed | None = None) -> str:
    """The proof in a few lines."""
    rows = [
        ("loss", f"relative error {proof.loss_rel_error:.1e}"),
        (
            "gradients",
            f"{len(proof.parameters)} parameters, relative error at most {proof.worst.error:.1e} ({proof.worst.name})",
        ),
    ]
    rows += [("micro-batches", proof.loss)] * bool(proof.loss)
    if schedule is not None:
        how = f"replayed only: {schedule.why}" if schedule.why else "run in this order"
        rows.append(("schedule", f"{schedule.name}, {schedule.placement}, {seconds(schedule.step_s)} a step, {how}"))
    rows += [("reduced", ", ".join(f"{name} {a} to {b}" for name, (a, b) in proof.reduction.items()))] * bool(
        proof.reduction
    )
    rows += [("defined" if not i else "", text) for i, text in enumerate(proof.substitutions)]
    steps = f", {proof.steps} optimizer steps" if proof.steps else ""
    lines = [f"{proof.ranks} processes, compared with one{steps}, in {seconds(proof.seconds)}", table(rows)]
    lines += [
        f"  WRONG {d.name}: relative error {d.error:.1e}, on ranks {', '.join(map(str, d.ranks))}"
        for d in proof.wrong[:SHOWN]
    ]
    verdict = f"proved equal (relative error at most {TOLERANCE:g})" if proof.equal else "NOT EQUAL"
    return "\n".join([*lines, f"  {verdict}"])


def _finite(error: float) -> float | None:
    return error if error < float("inf") else None


def phase_proof_json(proof: PhaseProof) -> dict[str, Any]:
    """The proof of the phases of serving by the keys that `symtensor prove --json` promises for them."""
    return {
        "equal": proof.equal,
        "ranks": dict(proof.ranks),
        "logits_rel_error": {one.name: _finite(one.error) for one in proof.logits},
        "cache_rel_error_max": _finite(max(one.error for one in proof.caches)),
        "caches_checked": len(proof.caches),
        "substitutions": list(proof.substitutions),
        "reduction": {name: list(sizes) for name, sizes in proof.reduction.items()},
        "seconds": proof.seconds,
    }


def phase_proof_text(proof: PhaseProof) -> str:
    """That in a few lines."""
    rows = [(f"logits of {one.name}", f"relative error {one.error:.1e}") for one in proof.logits]
    rows.append(("caches", f"{len(proof.caches)}, relative error at most {max(one.error for one in proof.caches):.1e}"))
    rows.append(("reduced", ", ".join(f"{name} {a} to {b}" for name, (a, b) in proof.reduction.items())))
    rows += [("defined" if not i else "", text) for i, text in enumerate(proof.substitutions)]
    ranks = ", ".join(f"{number} for {phase}" for phase, number in proof.ranks.items())
    head = f"Processes: {ranks}; compared with one that has full attention, in {seconds(proof.seconds)}"
    wrong = [one for one in (*proof.logits, *proof.caches) if not one.equal]
    lines = [
        f"  WRONG {one.name}: relative error {one.error:.1e}, on ranks {', '.join(map(str, one.ranks))}"
        for one in wrong
    ]
    return "\n".join([head, table(rows), *lines[:SHOWN], "  proved" if proof.equal else "  NOT proved"])
