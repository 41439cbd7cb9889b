"""Products that sum over a dim: the cube unit's work."""

from collections.abc import Mapping

from ms_symtensor.ops.quirks import UNDISTRIBUTED, Quirks, stretched
from ms_symtensor.ops.rule import alike, rule
from ms_symtensor.ops.signature import OpView, Signature, Unit, named


def einsum(op: OpView) -> Signature:
    """Every letter of the equation is a dim, those that no result has are summed; `...` stands for dims that are broadcast.

    MindSpore has no distributed form: it cuts the first dim of every tensor by all devices, and rejects what that does not fit.
    """
    equation = str(op.argument(0, "equation")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    written = left.split(",")
    if not arrow:  # in the order of the alphabet, what stands there once
        letters = sorted({d for d in left if d.isalpha()})
        right = ("..." if "..." in left else "") + "".join(d for d in letters if left.count(d) == 1)
    inputs = [_letters(term, len(t.shape)) for term, t in zip(written, op.inputs, strict=True)]
    (output,) = [_letters(right, len(t.shape)) for t in op.outputs]
    diagonal = frozenset(d for dims in inputs for d in dims if dims.count(d) > 1)
    batch, firsts = next(iter(output), ""), {dims[0] for dims in inputs}

    def forbids(cuts: Mapping[str, int], device_num: int) -> str | None:
        if device_num == 1 or (firsts == {batch} and cuts.get(batch, 1) == device_num):
            return None
        return (
            "MindSpore cuts the first dim of every tensor of ops.einsum by all devices, and takes no other equation than one that"
            " this fits; write it with MatMul, BatchMatMul and Transpose"
        )

    return named(
        op, inputs, [output], unit=Unit.CUBE, keeps_inputs=tuple(range(len(inputs))), bilinear=len(inputs) == 2,
        fixed=diagonal | {d for dims in inputs for d in dims} - {batch}, forbids=forbids, is_distributed=False,
    )  # fmt: skip


def _letters(term: str, rank: int) -> tuple[str, ...]:
    """The dims of one tensor of an equation; those in the place of `...` are numbered from the right."""
    before, dots, after = term.partition("...")
    left_out = rank - len(before) - len(after) if dots else 0
    return (*before, *(f"_{i}" for i in reversed(range(left_out))), *after)


_FLAGS = "ta = transpose_a 0, tb = transpose_b 1"
_MATRICES = f"@[m k]ta, @[k n]tb -> + m n | {_FLAGS}"
_BATCHES = f"@b... [m k]ta, @b... [k n]tb -> + b... m n | {_FLAGS}"
_ADDED = "b... m? n?, @s... b... m k, @s... b... k n ->"
_ADDED_PRODUCT = {"unit": Unit.CUBE, "mesh": "s... b... m k n"}
_BILINEAR = {"unit": Unit.CUBE, "bilinear": True}
_OUTER = "@m, @n -> m n"


def _of_a_library(name: str) -> Quirks:
    return Quirks(instead=f"use ops.{name} (of a library: mint.{name} = ops.{name} in your file)")


RULES = {
    "MatMul": rule(_MATRICES, Quirks(leading="m"), scatter="m", **_BILINEAR),
    **alike("BatchMatMul BatchMatMulExt MatMulExt", rule(_BATCHES, Quirks(adjust=stretched), **_BILINEAR)),
    "Outer": rule(_OUTER, bilinear=True),
    "Dense": rule("@... k, @n k, ?n -> + ... n", UNDISTRIBUTED, **_BILINEAR),
    "Einsum": einsum,
    "Mm": rule(_MATRICES, UNDISTRIBUTED, scatter="m", leading="m", **_BILINEAR),
    "Ger": rule(_OUTER, UNDISTRIBUTED, bilinear=True),
    "Cdist": rule("@b... m k!, @b... n k! -> @b... m n", Quirks(rejects_whole_first="b...")),
    "Mv": rule("@m k, @k -> + m", UNDISTRIBUTED, bilinear=True),
    "Dot": rule("@k, @k -> +", Quirks(instead="use ops.reduce_sum of the product"), bilinear=True),
    **{
        n: rule(f"{_ADDED} + b... m n", _of_a_library(n.lower()), **_ADDED_PRODUCT)
        for n in ("Addmm", "Baddbmm", "Addbmm")
    },
    "InplaceAddmm": rule(f"{_ADDED} =+ b... m n", Quirks(instead="write x + ops.matmul(a, b)"), **_ADDED_PRODUCT),
    "Addmv": rule("m?, @m k, @k -> + m", _of_a_library("addmv"), mesh="m k"),
    # every row times the weight of its group, for the function of a Morph
    "GroupedMatmul": rule(
        "@m k, @1 k n, *@~1... -> m n",
        Quirks(refused="MindSpore partitions no GroupedMatmul: put it into the function of an ops.Morph"),
        unit=Unit.CUBE,
    ),
}
