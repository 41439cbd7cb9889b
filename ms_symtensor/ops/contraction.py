"""Products that sum over a dim: the cube unit's work."""

from collections.abc import Mapping

from ms_symtensor.errors import InputError
from ms_symtensor.ops.batch_only import batch_only, cut_along_batch
from ms_symtensor.ops.signature import NO_DIM, OpView, Signature, Unit, bind, dims_like, named, refused


def matmul(op: OpView) -> Signature:
    """`m k, k n -> m n`, either input transposed as its flag says."""
    first = "k m" if op.argument(0, "transpose_a", False) else "m k"
    second = "n k" if op.argument(1, "transpose_b", False) else "k n"
    return bind(
        f"{first}, {second} -> m n",
        op.inputs, op.outputs, op.name,
        mesh=("m", "k", "n"), unit=Unit.CUBE, keeps_inputs=(0, 1), bilinear=True, scatter="m", leading="m",
    )  # fmt: skip


def batch_matmul(op: OpView) -> Signature:
    """`... m k, ... k n -> ... m n`, either input transposed as its flag says; leading dims are broadcast.

    Without a strategy MindSpore cuts none where it would have to leave the first dim of an input with all dims whole.
    InputError for a vector, which MindSpore rejects in a partitioned program.
    """
    if min(len(t.shape) for t in op.inputs) < 2:
        raise InputError(f"{op.name} ({op.type}): MindSpore cuts no product with a vector; make it a matrix")
    first = ("k", "m") if op.argument(0, "transpose_a", False) else ("m", "k")
    second = ("n", "k") if op.argument(1, "transpose_b", False) else ("k", "n")
    shape = op.outputs[0].shape
    batch = dims_like(len(shape) - 2, "b")
    is_stretched = bool(batch) and any(len(t.shape) == len(shape) and t.shape[0] != shape[0] for t in op.inputs)

    def leading(rank: int) -> tuple[str, ...]:
        return batch[len(batch) - (rank - 2) :]

    return named(
        op,
        (leading(len(op.inputs[0].shape)) + first, leading(len(op.inputs[1].shape)) + second),
        ((*batch, "m", "n"),),
        mesh=(*batch, "m", "k", "n"), unit=Unit.CUBE, keeps_inputs=(0, 1), bilinear=True,
        leading=NO_DIM if is_stretched else (*batch, "m")[0],
    )  # fmt: skip


def dense(op: OpView) -> Signature:
    """`... k, n k[, n] -> ... n`: a linear layer, with its bias where one is given.

    MindSpore has no distributed form of it and ignores a strategy: the first dim is cut over all devices where it
    divides, otherwise all devices repeat the work. Use MatMul to cut it otherwise.
    """
    rows = dims_like(len(op.inputs[0].shape) - 1)
    weights = [("n", "k"), ("n",)][: len(op.inputs) - 1]
    whole = named(
        op, [(*rows, "k"), *weights], [(*rows, "n")], mesh=(*rows, "k", "n"), unit=Unit.CUBE, keeps_inputs=(0, 1),
        bilinear=True,
    )  # fmt: skip
    return cut_along_batch(op, whole)


def added_product(op: OpView) -> Signature:
    """`... m n, ... m k, ... k n -> ... m n`: a product added to a tensor that is broadcast (Addmm, Baddbmm, Addbmm)."""
    m, n, k = "m", "n", "k"
    batch = dims_like(len(op.outputs[0].shape) - 2, "b")
    summed = dims_like(len(op.inputs[1].shape) - 2 - len(batch), "s")
    output = (*batch, m, n)
    return named(
        op, [output[len(output) - len(op.inputs[0].shape) :], (*summed, *batch, m, k), (*summed, *batch, k, n)], [output],
        mesh=(*summed, *batch, m, k, n), unit=Unit.CUBE, keeps_inputs=(1, 2),
    )  # fmt: skip


def added_vector(op: OpView) -> Signature:
    """`m, m k, k -> m`: a matrix times a vector, added to one."""
    return bind("m, m k, k -> m", op.inputs, op.outputs, op.name, mesh=("m", "k"), keeps_inputs=(1, 2))


def vector_product(op: OpView) -> Signature:
    """`m k, k -> m`."""
    return bind("m k, k -> m", op.inputs, op.outputs, op.name, mesh=("m", "k"), keeps_inputs=(0, 1), bilinear=True)


def dot(op: OpView) -> Signature:
    """`k, k -> `."""
    return bind("k, k -> ", op.inputs, op.outputs, op.name, keeps_inputs=(0, 1), bilinear=True)


def outer(op: OpView) -> Signature:
    """`m, n -> m n`."""
    return bind("m, n -> m n", op.inputs, op.outputs, op.name, keeps_inputs=(0, 1), bilinear=True)


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


def grouped_matmul(op: OpView) -> Signature:
    """`m k, groups k n, groups -> m n`: every row times the weight of its group, for the function of a Morph.

    Elsewhere MindSpore cuts neither groups nor rows, and rejects its gradient.
    """
    product = named(
        op, [("m", "k"), (None, "k", "n"), *[(None,) * len(t.shape) for t in op.inputs[2:]]], [("m", "n")],
        unit=Unit.CUBE, keeps_inputs=(0, 1, 2), differentiable=(0, 1),
    )  # fmt: skip
    return refused(product, "MindSpore partitions no GroupedMatmul: put it into the function of an ops.Morph")


RULES = {
    "MatMul": matmul,
    **dict.fromkeys(("BatchMatMul", "BatchMatMulExt", "MatMulExt"), batch_matmul),
    "Dense": dense,
    "Outer": outer,
    # of which MindSpore has no distributed form
    "Einsum": einsum,
    "Mm": batch_only(matmul),
    "Ger": batch_only(outer),
    "Mv": batch_only(vector_product),
    "Dot": batch_only(dot, "use ops.reduce_sum of the product"),
    "Addmm": batch_only(added_product, "use ops.addmm (of a library: mint.addmm = ops.addmm in your file)"),
    "Baddbmm": batch_only(added_product, "use ops.baddbmm (of a library: mint.baddbmm = ops.baddbmm in your file)"),
    "Addbmm": batch_only(added_product, "use ops.addbmm (of a library: mint.addbmm = ops.addbmm in your file)"),
    "Addmv": batch_only(added_vector, "use ops.addmv (of a library: mint.addmv = ops.addmv in your file)"),
    "GroupedMatmul": grouped_matmul,
}
