"""Operators that change their first input in place, `x += y`: their result is what they leave there.

MindSpore copies what is read again before the change, so that gradients see the values of before. A capture refuses networks that
read the changed tensor afterwards by its old name (`bridge.capture.in_place`).
"""

from ms_symtensor.ops.batch_only import batch_only
from ms_symtensor.ops.contraction import added_product
from ms_symtensor.ops.elementwise import elementwise
from ms_symtensor.ops.indexing import index_add, index_fill, scatter_along

_SUMS = ("InplaceAddExt", "InplaceSubExt", "InplaceMuls", "InplaceDivs", "InplaceAddsExt", "InplaceSubScalar")
_READ_INPUT = (
    "InplaceSiLU", "InplaceLog", "InplaceHardtanh", "InplaceElu", "InplaceThreshold", "InplaceClampScalar",
)  # fmt: skip
_READ_OUTPUT = ("InplaceReLU", "InplaceSigmoid", "InplaceTanh", "InplaceExp", "InplaceErfinv")
_NO_GRADIENT = (
    "InplaceFloor", "InplaceSign", "InplaceZero", "InplaceFillScalar", "InplaceFillTensor", "InplaceRemainderTensorScalar",
    "InplaceRemainderTensorTensor", "InplaceDivMod", "InplaceDivMods",
)  # fmt: skip

RULES = {
    **dict.fromkeys(_SUMS, elementwise()),
    "InplaceMul": elementwise(keeps_inputs=(0, 1), bilinear=True),
    "InplaceDiv": elementwise(keeps_inputs=(1,), keeps_outputs=(0,), linear=0),
    **dict.fromkeys(("InplaceFloorDivide", "InplaceFloorDivides"), elementwise(differentiable=())),
    "InplaceCopy": elementwise(differentiable=(1,)),  # of what was there before there is no gradient
    # of which MindSpore has no distributed form
    **dict.fromkeys(_READ_INPUT, batch_only(elementwise((0,)))),
    **dict.fromkeys(_READ_OUTPUT, batch_only(elementwise((), (0,)))),
    **dict.fromkeys(_NO_GRADIENT, batch_only(elementwise(differentiable=()))),
    "InplaceClampTensor": batch_only(elementwise((0, 1, 2))),
    "InplaceMaskedFillScalar": batch_only(elementwise((1,), differentiable=(0,))),
    "InplaceMaskedFillTensor": batch_only(elementwise((1,), differentiable=(0, 2))),
    **dict.fromkeys(("InplaceScatterSrc", "InplaceScatterAdd", "InplaceScatterValue"), scatter_along),
    **dict.fromkeys(("InplaceIndexAddExt", "InplaceIndexCopy"), batch_only(index_add)),
    "InplaceIndexFillScalar": batch_only(index_fill),
    "InplaceAddmm": batch_only(added_product, "write x + ops.matmul(a, b)"),
}  # fmt: skip
