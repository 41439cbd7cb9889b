"""Operators that are cut alike: those of a cell whose many products would leave the search too many layouts to join."""

from collections.abc import Mapping

from ms_symtensor.ops.placement import OpStrategy, cuts_of
from ms_symtensor.ops.signature import OpView, Signature
from ms_symtensor.tensor.graph import Op

CELLS = ("DeltaCore",)
"""Classes of cells whose tensors begin with samples and heads. Their operators cut these two dims alike, and no other."""


def region_of(op: Op) -> str | None:
    """The scope of the cell with which `op` is cut alike; None: it is cut as it likes."""
    parts = op.name.split("/")
    number = next((n for n, part in enumerate(parts) if part.endswith(tuple(f"-{name}" for name in CELLS))), None)
    return None if number is None else "/".join(parts[: number + 1])


def held_whole(sig: Signature) -> frozenset[str]:
    """The dims that an operator of such a cell does not cut; none of one that has no heads."""
    samples, heads = _first(sig)
    return frozenset(sig.mesh) - {samples, heads} if heads else frozenset()


def why_held_whole(op: Op, sig: Signature, slices: Mapping[str, int]) -> str:
    """Why `op` cannot be cut into so many `slices`, dim by dim; empty: its cell does not forbid it."""
    region = region_of(op)
    held = sorted(d for d, number in slices.items() if number > 1 and is_alike(op, sig) and d in held_whole(sig))
    if region is None or not held:
        return ""
    first, second = _first(sig)
    dims = f"heads ({second})" if not first else f"samples ({first}) and heads ({second})"
    return f"{region.rpartition('/')[2]} is cut along {dims} alone, all its operators alike: leave {held[0]} whole"


def cuts_alike(op: OpView, sig: Signature, strategy: OpStrategy, device_num: int) -> tuple[int, int]:
    """How often `strategy` cuts samples, 0 where an operator has none to cut, and heads."""
    cuts = cuts_of(op, sig, strategy, device_num)
    samples, heads = _first(sig)
    return (cuts.get(samples, 1) if samples else 0, cuts.get(heads, 1))


def is_alike(op: Op, sig: Signature) -> bool:
    """Whether `op` takes the cuts of its cell."""
    return region_of(op) is not None and _first(sig)[1] != ""


def _first(sig: Signature) -> tuple[str, str]:
    """The dims of samples and of heads, empty where an operator has none to cut."""
    dims = [d if d and d in sig.mesh and d not in sig.fixed else "" for d in sig.outputs[0]]
    samples, heads = [*dims, "", ""][:2]
    return samples, heads
