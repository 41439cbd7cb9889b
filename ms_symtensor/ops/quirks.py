"""What MindSpore does otherwise than a rule says: a second record, apart from the rules.

Some peculiarities are a field of `Quirks`. Those that need an operator's shapes are functions at the end.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ms_symtensor.ops.signature import NO_DIM, Dims, DimsOf, OpView, Signature
from ms_symtensor.ops.undistributed import OTHER_OPERATORS, cut_along_batch

Adjust = Callable[[OpView, Signature, DimsOf], Signature]


@dataclass(frozen=True)
class Quirks:
    """Peculiarities of MindSpore's compiler; dims by the names and words of the rule's line.

    - `instead`: MindSpore has no distributed form of the operator; what to write in its place.
    - `refused`: no partitioned program may have the operator, and why; `refused_where` limits that to some operators.
    - `only`: the dims that it cuts, where it leaves others whole.
    - `leading`: the dim that it cuts of an operator that is given no strategy, where that is not the first of the first input.
    - `rejects_whole_first`: it rejects an operator without a strategy whose first dim is one of these; `needs_strategy`: any.
    - `miscompiled`, `gradient_miscompiled`: dims whose cut it compiles to a wrong result, to a wrong gradient.
    - `lists_output`: its strategies list the dims of the output in the place of those of the first input;
      `lists_output_alone`: and no others.
    - `adjust`: anything else, a function of this module.
    """

    instead: str | None = None
    refused: str | None = None
    refused_where: Callable[[OpView], bool] = lambda op: True
    only: str | None = None
    leading: str | None = None
    rejects_whole_first: str | None = None
    needs_strategy: bool = False
    miscompiled: str = ""
    gradient_miscompiled: str = ""
    lists_output: bool = False
    lists_output_alone: bool = False
    adjust: Adjust | None = None


NO_QUIRKS = Quirks()
UNDISTRIBUTED = Quirks(instead=OTHER_OPERATORS)


def fields_of(quirks: Quirks, inputs: Sequence[Dims], outputs: Sequence[Dims], dims_of: DimsOf) -> dict[str, Any]:
    """The fields of a `Signature` that `quirks` say, whose names mean the dims that `dims_of` tells."""
    fields: dict[str, Any] = {}
    if quirks.only is not None:
        fields["fixed"] = frozenset(d for dims in (*inputs, *outputs) for d in dims if d) - {*dims_of(quirks.only)}
    if quirks.leading is not None:
        fields["leading"] = next(iter(dims_of(quirks.leading)), None)
    if quirks.needs_strategy or {"d0", "b0"} & {*dims_of(quirks.rejects_whole_first or "")}:
        fields["needs_strategy"] = always
    if quirks.lists_output:
        fields["entries"] = (outputs[0], *inputs[1:])
    if quirks.lists_output_alone:
        fields["entries"] = (outputs[0],)
    if quirks.miscompiled:
        fields["miscompiled"] = frozenset(dims_of(quirks.miscompiled))
    if quirks.gradient_miscompiled:
        fields["gradient_miscompiled"] = frozenset(dims_of(quirks.gradient_miscompiled))
    return fields


def adjusted(signature: Signature, quirks: Quirks, op: OpView, dims_of: DimsOf) -> Signature:
    """`signature` of `op` with those of its `quirks` that its shapes decide."""
    found = signature
    if quirks.adjust is not None:
        found = quirks.adjust(op, found, dims_of)
    if quirks.instead is not None:
        found = cut_along_batch(op, found, quirks.instead)
    if quirks.refused is not None and quirks.refused_where(op):
        found = refused(found, quirks.refused)
    return found


def always(device_num: int) -> bool:
    """MindSpore rejects an operator without a strategy on any number of devices but one."""
    return device_num > 1


def refused(signature: Signature, reason: str) -> Signature:
    """`signature` of an operator that no partitioned program may have, for a `reason` that says what to write instead."""
    return replace(signature, forbids=lambda _, device_num: reason if device_num > 1 else None)


def stretched(op: OpView, signature: Signature, dims_of: DimsOf) -> Signature:
    """BatchMatMul: without a strategy MindSpore cuts none where it would have to leave the first dim of an input whole."""
    output = op.outputs[0].shape
    is_stretched = len(output) > 2 and any(len(t.shape) == len(output) and t.shape[0] != output[0] for t in op.inputs)
    return replace(signature, leading=NO_DIM if is_stretched else "b0" if len(output) > 2 else "m")


def whole_in_half_precision(op: OpView, signature: Signature, dims_of: DimsOf) -> Signature:
    """RmsNorm: where a normalised dim is cut, MindSpore puts elementary operators in its place, with an AllReduce of the means
    of squares among them; in half precision that replacement does not compile.
    """
    return signature if op.inputs[0].dtype == "float32" else replace(signature, fixed=frozenset(signature.inner))


def chosen_by_mask(op: OpView, signature: Signature, dims_of: DimsOf) -> Signature:
    """Select: MindSpore takes one cut for all three, so that a broadcast dim stays whole, and no tensor with fewer dims."""
    shape = op.outputs[0].shape
    if any(len(t.shape) != len(shape) for t in op.inputs):
        reason = (
            "MindSpore takes no number, and no tensor with fewer dims, beside a mask: ops.masked_fill takes a number"
        )
        return refused(signature, reason)
    broadcast = {f"d{i}" for t in op.inputs for i, (n, m) in enumerate(zip(t.shape, shape, strict=True)) if n != m}
    rejected = "d0" in broadcast and op.inputs[0].shape[0] > 1
    return replace(signature, fixed=frozenset(broadcast), needs_strategy=always if rejected else None)


def gathered(op: OpView, signature: Signature, dims_of: DimsOf) -> Signature:
    """Gather: MindSpore cuts the looked-up dim if it is the first of a table with at most two, and lays out first the devices
    that are left over then; a partial sum is scattered along the indices without being asked for. It takes no 64-bit
    indices there: it subtracts a 32-bit offset from them.
    """
    table, index, (looked_up,) = dims_of("b... t..."), dims_of("b... i..."), dims_of("v")
    others = [d for d in table if d != looked_up]
    can_cut = looked_up == table[0] and len(table) <= 2 and len(index) > 0 and op.inputs[1].dtype != "int64"

    def forbids(cuts: Mapping[str, int], device_num: int) -> str | None:
        vocabulary, rows = cuts.get(looked_up, 1), [cuts.get(d, 1) for d in index]
        width = [cuts.get(d, 1) for d in others]
        if vocabulary == 1:
            return None
        used = math.prod((vocabulary, *rows, *width))
        if max(rows) > 1:
            fits = len(table) == 2 and len(index) <= 2 and rows[0] > 1 and (len(index) == 1 or width == [1])
            if used < device_num or not fits:
                return (
                    "the looked-up dim and the indices are cut together only if that uses all devices, of a 2-dim table"
                )
        if max(width, default=1) > 1 and used < device_num:
            return "both dims of the table are cut together only if that uses all devices"
        return None

    return replace(
        signature, fixed=frozenset() if can_cut else frozenset((looked_up,)), forbids=forbids,
        repeat_left_when=frozenset((looked_up,)), scatter=index[0] if can_cut else None, implicit_reduce_scatter=True,
        scatters_whole_only=len(index) > 1, leading=next(iter(index), None),
    )  # fmt: skip


def embedded(op: OpView, signature: Signature, dims_of: DimsOf) -> Signature:
    """Embedding: its table is cut over all devices or not at all, and a partial sum is scattered without being asked for. Of
    64-bit indices its rows stay whole, as of Gather, so that it needs a strategy.
    """
    is_wide = op.inputs[0].dtype == "int64"

    def forbids(cuts: Mapping[str, int], device_num: int) -> str | None:
        used = cuts.get("vocabulary", 1) * cuts.get("width", 1)
        return None if used in (1, device_num) else "the table of Embedding is cut over all devices or not at all"

    def rejects(device_num: int) -> bool:
        return is_wide or op.inputs[0].shape[0] % device_num != 0

    return replace(
        signature, fixed=signature.fixed | ({"vocabulary"} if is_wide else set()), forbids=forbids, implicit_reduce_scatter=True,
        needs_strategy=rejects if op.inputs[0].shape else None,
    )  # fmt: skip


def one_hot(op: OpView, signature: Signature, dims_of: DimsOf) -> Signature:
    """OneHot, OneHotExt: of indices with several dims MindSpore cuts the first alone, of 64-bit ones never the vectors."""
    whole = {*signature.mesh} - {"i0"} if len(op.inputs[0].shape) > 1 else set[str]()
    if op.inputs[0].dtype == "int64":
        whole.add("depth")
    return replace(signature, fixed=frozenset(whole), leading=signature.outputs[0][0])


def looked_up(op: OpView, signature: Signature, dims_of: DimsOf) -> Signature:
    """GatherD: of 64-bit indices the looked-up dim stays whole, as of Gather."""
    return replace(signature, fixed=signature.fixed | {*dims_of("a")}) if op.inputs[1].dtype == "int64" else signature


def attended(op: OpView, signature: Signature, dims_of: DimsOf) -> Signature:
    """FlashAttentionScore: lengths of packed samples given as tuples count as entries of the strategy. Without a strategy
    MindSpore cuts the first dims of all inputs, which a mask that all samples share does not take.
    """
    ends = [a for a in op.arguments[:-8] if isinstance(a, tuple)]
    rejected = any(len(t.shape) == 2 for t, position in zip(op.inputs, op.positions, strict=False) if position == 6)
    return replace(
        signature, entries=(*signature.inputs, *[("b",)] * len(ends)),
        needs_strategy=always if rejected else signature.needs_strategy,
    )  # fmt: skip
