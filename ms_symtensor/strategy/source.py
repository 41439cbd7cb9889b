"""What `Plan.source` says of the network that a plan is for."""

from collections.abc import Mapping
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.streams import notice


def require_trusted(plan: Plan) -> None:
    """Say on the standard error stream which file of `plan` runs; InputError unless it may."""
    place = plan.source.get("factory")
    if place is None:
        return
    if not plan.trusted:
        raise InputError(
            f"the plan runs {place}, and is not as this user's own `symtensor plan` made it: read that file, then give --trust"
            " (SYMTENSOR_TRUST=1; in Python load_plan(dir, trust=True))"
        )
    notice(f"running {place}, which the plan names")


def zoo_options(source: Mapping[str, str]) -> dict[str, Any]:
    """The options of `model_zoo.dimensions_of` that `source` holds as texts."""
    options: dict[str, Any] = {
        name: source[name]
        for name in ("attention", "compute_dtype", "experts", "dimensions", "phase")
        if name in source
    }
    try:
        numbers = ("num_layers", "dense_layers", "seq_length", "batch_size", "token_groups", "lora")
        options |= {name: int(source[name]) for name in numbers if name in source}
        options |= {name: float(source[name]) for name in ("load_imbalance",) if name in source}
    except ValueError as error:
        raise InputError(f"the plan's source {dict(source)} holds a number that is none: plan again") from error
    if "lazy_inline" in source:
        options["lazy_inline"] = source["lazy_inline"] == "True"
    return options


def require_function(place: str) -> None:
    """InputError if `place` is a file without a function in it."""
    if ":" not in place:
        file = place if place.endswith(".py") else "file.py"
        raise InputError(f"{place} names no function: give {file}:factory, a function that returns (cell, inputs)")
