"""Tensors made of nothing, of one value or at random, and such as another tensor names the type of."""

from ms_symtensor.ops.quirks import Quirks
from ms_symtensor.ops.rule import alike, rule

_NEW = Quirks(instead="use ops.zeros, ops.ones or ops.full of the shape and the element type")

RULES = {
    **alike("Eye FillScalar FillTensor Empty RandExt Randn NormalFloatFloat", rule("*~1... -> 1...", differentiable=())),
    **alike(
        "StandardNormal UniformReal FillV2 LinSpaceExt",
        rule("*1... -> ...", Quirks(leading="...", lists_output=True), differentiable=()),
    ),
    "LinSpace": rule("*1... -> ...", Quirks(leading="...", lists_output_alone=True), differentiable=()),
    # of any shape, of the element type of a tensor: MindSpore takes it for cut with that tensor, and makes it whole
    **alike("NewZeros NewOnes NewFull NewEmpty", rule("~... -> 1...", _NEW)),
}  # fmt: skip
