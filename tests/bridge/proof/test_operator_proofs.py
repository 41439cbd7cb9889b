"""Operators, cut dim by dim, by real processes: a sample of what benchmarks/operator_proofs.py runs."""

from benchmarks.operator_proofs import results


def test_operators_compute_what_one_process_does() -> None:
    found = list(results(["ArgMaxWithValue", "CumSum", "GatherD"], 2, float("inf")))
    assert [(r["case"], r.get("wrong", r.get("error"))) for r in found] == [
        ("ArgMaxWithValue", {}), ("CumSum", {}), ("GatherD", {}), ("GatherD", {}),
    ]  # fmt: skip
