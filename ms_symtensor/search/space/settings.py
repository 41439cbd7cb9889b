"""The optimizer shardings that are searched."""

from dataclasses import replace

from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.search.constraints.limits import FREE, Limits


def settings_of(
    base: Settings, shares_blocks: bool = False, limits: Limits = FREE, in_stages: bool = False
) -> tuple[Settings, ...]:
    """`base` with the optimizer shardings that are searched within `limits`: none, level 1, level 3, over all copies.

    Level 2 compiles to the same program as level 1 where gradients are not accumulated: it is there where steps may lie
    `in_stages`, or where it is pinned. MindSpore does not combine level 3 with blocks that it compiles once for all
    (`@lazy_inline`): InputError if it is pinned.
    """
    levels = (OptimizerLevel.LEVEL1, OptimizerLevel.NONE, *(() if shares_blocks else (OptimizerLevel.LEVEL3,)))
    allowed = [level for level in levels if limits.allows("optimizer_level", level)]
    if (in_stages or not allowed) and limits.allows("optimizer_level", OptimizerLevel.LEVEL2):
        allowed.append(OptimizerLevel.LEVEL2)
    if not allowed:
        raise InputError(
            "optimizer_level = 3: MindSpore does not combine it with pipeline stages, nor with blocks of @lazy_inline"
        )
    return tuple(replace(base, optimizer_level=level) for level in allowed)
