"""All signatures, by MindSpore's primitive name: the one place that says which operators are known."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from ms_symtensor.errors import InputError, UnknownOperatorError
from ms_symtensor.ops import attention, contraction, elementwise, indexing, loss, normalization, reduction, shape
from ms_symtensor.ops.signature import OpView, Signature

Rule = Callable[[OpView], Signature]


def merge(*families: Mapping[str, Rule]) -> dict[str, Rule]:
    """Join families of rules; InputError where two define the same operator."""
    merged: dict[str, Rule] = {}
    for family in families:
        for name, rule in family.items():
            if name in merged:
                raise InputError(f"operator {name!r} has two signatures; keep one")
            merged[name] = rule
    return merged


@lru_cache(maxsize=1)
def rules() -> Mapping[str, Rule]:
    """The rules that ship with ms_symtensor."""
    families = (attention, contraction, elementwise, indexing, loss, normalization, reduction, shape)
    return merge(*(family.RULES for family in families))


def signature(op: OpView, extra: Mapping[str, Rule] | None = None) -> Signature:
    """The signature of `op`; rules in `extra` come first.

    Errors: UnknownOperatorError naming the operator, its shapes and how to add its line.
    """
    rule = (extra or {}).get(op.type) or rules().get(op.type)
    if rule is None:
        shapes = ", ".join(map(str, op.inputs)), ", ".join(map(str, op.outputs))
        raise UnknownOperatorError(
            f"operator {op.type} ({op.name}) has no signature: {shapes[0]} -> {shapes[1]}. Add its line to a file of "
            f'ms_symtensor/ops, e.g. "{op.type}": line("... d -> ... d"), and list it in registry.py'
        )
    return rule(op)
