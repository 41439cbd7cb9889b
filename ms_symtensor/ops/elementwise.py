"""Operators that work element by element, with broadcasting: a line says what the gradient reads."""

from typing import Any

from ms_symtensor.ops.quirks import OTHER_OPERATORS, UNDISTRIBUTED, Quirks, chosen_by_mask
from ms_symtensor.ops.rule import LineRule, alike, rule

_FIRST = Quirks(leading="...")
"""Of one that is given no strategy MindSpore cuts the first dim of its result."""

PLAIN = "*... -> *..."
NO_GRADIENT = "*~... -> *..."
READS_INPUT = "@..., *... -> *..."
READS_OUTPUT = "*... -> @..., *..."
READS_BOTH = "@..., *... -> @..., *..."
READS_TWO = "@..., ?@..., *... -> *..."
QUOTIENT = "..., ?@..., *... -> @..., *..."
MASKED = "..., ?@~..., *... -> ..."


def elementwise(line: str, instead: str | None = None, **properties: Any) -> LineRule:
    """Element by element as `line` says; `instead`: MindSpore has no distributed form, and what to write in its place."""
    return rule(line, Quirks(leading="...", instead=instead), **properties)


def undistributed(names: str, line: str, instead: str = OTHER_OPERATORS) -> dict:
    """Operators of which MindSpore has no distributed form."""
    return alike(names, elementwise(line, instead))


_SILU = 5
"""Operations of x / (1 + exp(-x)): sign, exponential, sum, reciprocal, product."""
_NUMBER = "MindSpore partitions no power of a number: write ops.exp(x * log(number)), or ops.pow of two tensors"
_CHOICE = "@~..., ..., ?... -> ..."
_HALF = "@... a! ... -> ... 1 ... | a = dim 0 -1"
_TRIANGLE = "... a! ... -> ... a! ... | a = from -2"
_DROPPED = "... a ..., *~1... -> ... a ..., @*a* | a = 0"

RULES = {
    # sums, signs, constant factors and one side of the diagonal, which MindSpore moves for a slice: the gradient reads nothing
    **alike(
        "Add AddExt Sub SubExt Neg AddN Muls Identity RemainderTensorScalar RemainderScalarTensor RemainderTensorTensor"
        " FmodTensor NextAfter Triu",
        elementwise(PLAIN),
    ),
    # MindSpore 2.10 moves the diagonal of a slice of Tril, but in the user's primitive: compiled again, it is moved again
    "Tril": rule(_TRIANGLE),
    "BiasAdd": rule("... a ..., a -> ... a ... | a = 1", _FIRST),
    # products and quotients
    "Mul": elementwise("@..., ?@... -> ...", bilinear=True),
    **alike("Div RealDiv DivNoNan", elementwise(QUOTIENT, reads_no_output=0)),
    "Pow": elementwise("@..., ?@... -> @...", reads_no_output=0),
    "Hypot": elementwise("@..., ?@... -> @..."),
    **alike(
        "Maximum Minimum Atan2 SquaredDifference SigmoidCrossEntropyWithLogits Xlogy Xdivy MulNoNan Polar FloorMod"
        " Mod TruncateMod",
        elementwise(READS_TWO),
    ),
    "AddcmulExt": elementwise("..., ?@..., ?@..., *... -> ..."),
    "Lerp": elementwise("@..., ?@..., ?@... -> ..."),
    # functions of one tensor
    **alike(
        "Log Log1p Square Cos Sin Tan Cosh Sinh ACos Asin Atan Atanh FastGeLU Abs Erf Erfc Expm1 Lgamma GeluExt ReLU6 EluExt"
        " LeakyReLUExt Softplus SoftplusExt Softsign Mish HSigmoid HShrink SoftShrink ClampScalar NanToNum BesselI0e BesselI1e",
        elementwise(READS_INPUT),
    ),
    **alike("Exp Sqrt Rsqrt Sigmoid ReLU Tanh Reciprocal Inv Elu SeLU Erfinv Acosh Asinh", elementwise(READS_OUTPUT)),
    "SiLU": elementwise(READS_INPUT, operations=_SILU),
    "GeLU": elementwise(READS_BOTH),
    "PReLU": rule("@... a ..., @a? -> ... a ... | a = 1"),
    # comparisons, logic, steps, and updates of a parameter
    **alike(
        "Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot LogicalXor FloorDiv"
        " Floor Ceil Round Rint Trunc Sign IsFinite ZerosLike OnesLike TruncateDiv BitwiseAnd BitwiseOr BitwiseXor"
        " IsClose DivMod Assign AssignAdd AssignSub",
        elementwise(NO_GRADIENT),
    ),
    # choices by a mask
    **alike("Select Where", rule(_CHOICE, Quirks(adjust=chosen_by_mask))),
    "MaskedFill": elementwise(MASKED),
    "Swiglu": rule(_HALF),
    "RotaryPositionEmbedding": rule("... a! ..., @... a! ..., @... a! ... -> ... a! ... | a = -1", Quirks(leading="a")),
    "Dropout": elementwise("*... -> ..., @..."),
    "DropoutExt": rule(_DROPPED),
    "PowScalarTensor": rule(READS_OUTPUT, Quirks(leading="...", refused=_NUMBER)),
    # of which MindSpore has no distributed form
    **undistributed("Dropout2D Dropout3D", "*... -> ..., @..."),
    **undistributed("RandLikeExt RandnLike BernoulliExt", NO_GRADIENT),
    **undistributed(
        "Divs AddScalar SubScalar FmodScalar MoveTo Complex Real Imag Conj Frac LerpScalar Clone Copy", PLAIN
    ),
    **undistributed("Exp2 SeLUExt", READS_OUTPUT),
    **undistributed("CeLU Sinc", READS_BOTH),
    **undistributed("LogAddExp LogAddExp2 Atan2Ext", READS_TWO),
    **undistributed("Addcmul Addcdiv AddcdivExt", "..., ?@..., ?@..., *... -> ..."),
    **undistributed("ClampTensor", "@..., ?@..., ?@... -> ..."),
    "SelectV2": rule(_CHOICE, Quirks(adjust=chosen_by_mask, instead=OTHER_OPERATORS)),
    "GLU": rule(_HALF, UNDISTRIBUTED),
    "TrilExt": rule(_TRIANGLE, UNDISTRIBUTED),
    **undistributed(
        "PowTensorScalar HSwish MishExt Hardtanh Threshold Digamma AcosExt AcoshExt AsinExt AsinhExt AtanExt"
        " Log2 Log10 Logit Angle XLogYScalarOther ClampMin ClampMax",
        READS_INPUT,
    ),
    **undistributed("LogSigmoid", "@... -> ..., @..."),
    **undistributed("MaskedFillScalar", "..., ?@~... -> ...", "use ops.masked_fill"),
    **undistributed(
        "IsNan IsInf IsNegInf BitwiseNot OnesLikeExt ZerosLikeExt FullLike EmptyLike EqScalar LessScalar GreaterEqualScalar"
        " FloorDivScalar DivMods BitwiseAndTensor BitwiseOrTensor BitwiseXorTensor BitwiseAndScalar BitwiseOrScalar"
        " BitwiseXorScalar Bucketize Detach",
        NO_GRADIENT,
    ),
}
