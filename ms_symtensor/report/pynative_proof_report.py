"""What a proof of a PyNative file found, for people and for programs."""

from typing import Any

from ms_symtensor.bridge.pynative.prove import TOLERANCE, PynativeProof
from ms_symtensor.bridge.pynative.texts import SUBSTITUTED
from ms_symtensor.report.text import seconds, table
from ms_symtensor.targets.mindformers_pynative import NAME
from ms_symtensor.targets.mindformers_pynative.reduced import LEFT_OUT

SHOWN = 12
"""Wrong parameters that are printed."""


def pynative_proof_json(proof: PynativeProof) -> dict[str, Any]:
    """What `symtensor prove --target mindformers-pynative --json` promises: the keys of other proofs, and the reduced degrees."""
    return {
        "target": NAME,
        "equal": proof.equal,
        "ranks": proof.ranks,
        "degrees": proof.degrees,
        "loss_rel_error": proof.loss_rel_error,
        "grad_rel_error_max": proof.grad_rel_error_max,
        "worst_parameter": proof.worst_parameter,
        "parameters_checked": proof.parameters,
        "wrong": [{"parameter": one.name, "error": one.error, "lacks": one.lacks} for one in proof.wrong],
        "substitutions": list(SUBSTITUTED),
        "not_run": list(LEFT_OUT),
        "seconds": proof.seconds,
    }


def pynative_proof_text(proof: PynativeProof) -> str:
    """The same in a few lines."""
    rows = [
        (
            "degrees",
            ", ".join(f"{key} {value}" for key, value in proof.degrees.items() if value not in (1, None, False)),
        ),
        ("loss", f"relative error {proof.loss_rel_error:.1e}"),
        (
            "gradients",
            f"{proof.parameters} parameters, relative error at most {proof.grad_rel_error_max:.1e} ({proof.worst_parameter})",
        ),
        *[("defined" if not i else "", text) for i, text in enumerate(SUBSTITUTED)],
        *[("not run" if not i else "", text) for i, text in enumerate(LEFT_OUT)],
    ]
    lines = [f"{proof.ranks} processes at reduced dims, compared with one, in {seconds(proof.seconds)}", table(rows)]
    for one in proof.wrong[:SHOWN]:
        lacks = f", right with one more sum over {one.lacks}" if one.lacks else ""
        lines.append(f"  WRONG {one.name}: relative error {one.error:.1e}{lacks}")
    lines += [f"  … and {len(proof.wrong) - SHOWN} more (--json)"] if len(proof.wrong) > SHOWN else []
    verdict = f"proved equal (relative error at most {TOLERANCE:g})" if proof.equal else "NOT EQUAL"
    return "\n".join([*lines, f"  {verdict}"])
