"""Operators that change their first input in place, `x += y`: their result, marked `=`, is what they leave there.

MindSpore copies what is read again before the change, so that gradients see the values of before. A capture refuses networks that
read the changed tensor afterwards by its old name (`bridge.capture.in_place`).
"""

from ms_symtensor.ops.elementwise import (
    MASKED,
    NO_GRADIENT,
    PLAIN,
    READS_INPUT,
    READS_OUTPUT,
    elementwise,
    undistributed,
)
from ms_symtensor.ops.rule import alike


def _left(line: str) -> str:
    """`line`, with its result in the memory of its first input."""
    inputs, _, outputs = line.partition("->")
    return f"{inputs}-> ={outputs}"


RULES = {
    **alike(
        "InplaceAddExt InplaceSubExt InplaceMuls InplaceDivs InplaceAddsExt InplaceSubScalar", elementwise(_left(PLAIN))
    ),
    "InplaceMul": elementwise("@..., ?@... -> =...", bilinear=True),
    "InplaceDiv": elementwise("..., ?@... -> =@...", reads_no_output=0),
    **alike("InplaceFloorDivide InplaceFloorDivides", elementwise(_left(NO_GRADIENT))),
    "InplaceCopy": elementwise("~..., ?... -> =..."),  # of what was there there is no gradient
    # of which MindSpore has no distributed form
    **undistributed(
        "InplaceSiLU InplaceLog InplaceHardtanh InplaceElu InplaceThreshold InplaceClampScalar", _left(READS_INPUT)
    ),
    **undistributed("InplaceReLU InplaceSigmoid InplaceTanh InplaceExp InplaceErfinv", _left(READS_OUTPUT)),
    **undistributed(
        "InplaceFloor InplaceSign InplaceZero InplaceFillScalar InplaceFillTensor InplaceRemainderTensorScalar"
        " InplaceRemainderTensorTensor InplaceDivMod InplaceDivMods",
        _left(NO_GRADIENT),
    ),
    **undistributed("InplaceClampTensor", "@..., ?@..., ?@... -> =..."),
    **undistributed("InplaceMaskedFillScalar InplaceMaskedFillTensor", _left(MASKED)),
}
