"""One small network per operator and form: the operators on which signatures are compared with the compiler."""

from dataclasses import dataclass

from ms_symtensor.tensor.graph import TensorType


@dataclass(frozen=True)
class Case:
    """`primitive` makes the operator, `call` applies it as `op` to the parameters p0, p1, ... of types `inputs`.

    `ignores_strategy`: MindSpore has no distributed form and accepts any strategy without using it. `accepts_more`: MindSpore
    accepts strategies that the signature leaves out on purpose.
    `replaced_where_partial`: where a partial sum arises MindSpore replaces the operator by several, without all outputs.
    """

    primitive: str
    call: str
    inputs: tuple[TensorType, ...]
    ignores_strategy: bool = False
    replaced_where_partial: bool = False
    accepts_more: bool = False


def _tensors(dtype: str, *shapes: tuple[int, ...]) -> tuple[TensorType, ...]:
    return tuple(TensorType(shape, dtype) for shape in shapes)


def _floats(*shapes: tuple[int, ...]) -> tuple[TensorType, ...]:
    return _tensors("float32", *shapes)


def _attention(
    layout: str, query: tuple[int, ...], key: tuple[int, ...], sparse_mode: int = 0, mask: tuple[int, ...] = ()
) -> Case:
    primitive = f"FlashAttentionScore(head_num=8, scale_value=0.5, input_layout='{layout}', sparse_mode={sparse_mode})"
    inputs = _tensors("float16", query, key, key) + (_tensors("uint8", mask) if mask else ())
    lengths = "(32, 48, 56, 64), (32, 48, 56, 64)" if layout == "TND" else "None, None"
    return Case(primitive, f"op(p0, p1, p2, None, None, None, {'p3' if mask else 'None'}, None, {lengths})", inputs)


_ONE_HOT_SCALARS = "Tensor(1.0, ms.float32), Tensor(0.0, ms.float32)"
_ARITHMETIC = (
    "Add", "Sub", "Mul", "Div", "RealDiv", "DivNoNan", "Pow", "Maximum", "Minimum", "FloorDiv", "FloorMod", "Mod",
    "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "Atan2", "SquaredDifference", "Xlogy", "Xdivy",
    "MulNoNan", "Hypot", "TruncateDiv", "TruncateMod", "SigmoidCrossEntropyWithLogits",
)  # fmt: skip
_UNARY = (
    "Neg", "Exp", "Log", "Sqrt", "Rsqrt", "Square", "Cos", "Sin", "Sigmoid", "GeLU", "FastGeLU", "ReLU", "Tanh", "Abs",
    "Erf", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Dropout", "Log1p", "Expm1", "Erfc", "Erfinv", "Tan", "Sinh", "Cosh",
    "Asin", "ACos", "Atan", "Asinh", "Acosh", "Atanh", "Inv", "Lgamma", "Rint", "Trunc", "Elu", "SeLU", "ReLU6", "HSigmoid",
    "HShrink", "SoftShrink", "Softplus", "Softsign", "Mish", "Identity", "Triu",
)  # fmt: skip
_BITWISE = ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
_PAIR, _MATRIX = _floats((16, 32), (16, 32)), _floats((16, 32))
_IMAGES = _floats((16, 8, 8, 8))
_SCATTERS = (
    "TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMul", "TensorScatterDiv", "TensorScatterMax",
    "TensorScatterMin",
)  # fmt: skip
_BATCH_ONLY = {
    "Divs": "op(p0, 2.0)", "FmodScalar": "op(p0, 3.0)", "AddScalar": "op(p0, 1.0, 1)", "SubScalar": "op(p0, 1.0, 1)",
    "PowTensorScalar": "op(p0, 2.0)", "CeLU": "op(p0)", "HSwish": "op(p0)", "MishExt": "op(p0)", "SeLUExt": "op(p0)",
    "Hardtanh": "op(p0)", "Threshold": "op(p0, 0.0, 1.0)", "Sinc": "op(p0)", "Digamma": "op(p0)", "AcosExt": "op(p0)",
    "AcoshExt": "op(p0)", "AsinExt": "op(p0)", "AsinhExt": "op(p0)", "AtanExt": "op(p0)", "LogSigmoid": "op(p0)",
    "IsNan": "op(p0)", "OnesLikeExt": "op(p0)", "ZerosLikeExt": "op(p0)", "EqScalar": "op(p0, 2.0)", "LessScalar": "op(p0, 2.0)",
    "GreaterEqualScalar": "op(p0, 2.0)", "FloorDivScalar": "op(p0, 2.0)", "Log2": "op(p0)", "Log10": "op(p0)",
    "Exp2": "op(p0)", "Frac": "op(p0)", "IsInf": "op(p0)",
}  # fmt: skip
"""Operators without a distributed form, on a matrix."""
_BATCH_ONLY |= {
    **dict.fromkeys(
        (
            "InplaceReLU", "InplaceSiLU", "InplaceSigmoid", "InplaceTanh", "InplaceExp", "InplaceFloor", "InplaceLog",
            "InplaceErfinv", "InplaceSign", "InplaceZero", "InplaceHardtanh", "InplaceElu", "Angle", "IsNegInf", "Clone", "Copy",
            "Detach",
        ),
        "op(p0)",
    ),
    **dict.fromkeys(("InplaceFillScalar", "InplaceRemainderTensorScalar", "XLogYScalarOther"), "op(p0, 2.0)"),
    **dict.fromkeys(("InplaceThreshold", "InplaceClampScalar"), "op(p0, 0.0, 1.0)"),
    **dict.fromkeys(("InplaceDivMods", "DivMods"), "op(p0, 2.0, 'floor')"),
    "FullLike": "op(p0, 0.5, None)", "EmptyLike": "op(p0, None)", "Chunk": "op(p0, 2, 1)", "Narrow": "op(p0, 1, 0, 4)",
    "Repeat": "op(p0, (1, 2))", "Kthvalue": "op(p0, 4, 1, False)", "MedianDim": "op(p0, 1, False)", "CumminExt": "op(p0, 1)",
    "CountNonZero": "op(p0, 1)", "Nansum": "op(p0, 1, False, None)",
}  # fmt: skip
_SEEDS = _tensors("int64", (), ())
_ROW = _floats((16, 32), (32,))
_VOLUMES, _LINES = _floats((8, 4, 8, 8, 8)), _floats((16, 8, 32))
_ON_IMAGES = {
    "AdaptiveAvgPool2DExt": "op(p0, (1, 1))", "Im2ColExt": "op(p0, (2, 2), (1, 1), (0, 0), (1, 1))",
    "ResizeBicubic": "op(p0, (16, 16))",
}  # fmt: skip
_OF_OPS = ("CeLU", "HSwish", "Sinc", "Digamma", "IsNan", "IsInf")

CASES: dict[str, Case] = {
    # contraction
    "MatMul": Case("ops.MatMul()", "op(p0, p1)", _floats((16, 32), (32, 64))),
    "MatMul transposed": Case("ops.MatMul(transpose_a=True, transpose_b=True)", "op(p0, p1)", _floats((32, 16), (64, 32))),
    "MatMul uneven": Case("ops.MatMul(transpose_b=True)", "op(p0, p1)", _floats((24, 6), (20, 6))),
    "BatchMatMul": Case("ops.BatchMatMul()", "op(p0, p1)", _floats((8, 4, 16, 32), (8, 4, 32, 8))),
    "BatchMatMul transposed": Case("ops.BatchMatMul(transpose_b=True)", "op(p0, p1)", _floats((8, 16, 32), (8, 8, 32))),
    "MatMulExt": Case("gen.MatMulExt()", "op(p0, p1)", _floats((16, 32), (32, 64))),
    "MatMulExt batch": Case("gen.MatMulExt()", "op(p0, p1)", _floats((8, 4, 16, 32), (8, 4, 32, 8))),
    "MatMulExt matrix": Case("gen.MatMulExt()", "op(p0, p1)", _floats((8, 16, 32), (32, 8))),
    "MatMulExt broadcast": Case("gen.MatMulExt()", "op(p0, p1)", _floats((8, 16, 32), (1, 32, 8))),
    "MatMulExt broadcast first": Case("gen.MatMulExt()", "op(p0, p1)", _floats((1, 8, 16, 32), (8, 1, 32, 8))),
    "BatchMatMulExt": Case("gen.BatchMatMulExt()", "op(p0, p1)", _floats((8, 16, 32), (8, 32, 8))),
    "BatchMatMul matrix": Case("ops.BatchMatMul()", "op(p0, p1)", _floats((8, 4, 16, 32), (32, 8))),
    "Dense": Case("gen.Dense()", "op(p0, p1, p2)", _floats((16, 32), (64, 32), (64,)), ignores_strategy=True),
    "Dense undivided": Case("gen.Dense()", "op(p0, p1, None)", _floats((3, 16, 32), (64, 32)), ignores_strategy=True),
    "Outer": Case("gen.Outer()", "op(p0, p1)", _floats((16,), (32,))),
    "Mm": Case("gen.Mm()", "op(p0, p1)", _floats((16, 32), (32, 64)), ignores_strategy=True),
    "Einsum": Case("ops.Einsum('bsk,btk->bst')", "op((p0, p1))", _floats((16, 8, 32), (16, 4, 32)), True),
    "Einsum of others": Case("ops.Einsum('bsd,dhk->bshk')", "op((p0, p1))", _floats((16, 8, 32), (32, 4, 8))),
    # convolution
    "Conv2D": Case("ops.Conv2D(16, 3, pad_mode='same')", "op(p0, p1)", _IMAGES + _floats((16, 8, 3, 3)), accepts_more=True),
    "Conv2D patches": Case("ops.Conv2D(32, 4, stride=4)", "op(p0, p1)", _IMAGES + _floats((32, 8, 4, 4)), accepts_more=True),
    "Conv2D groups": Case(
        "ops.Conv2D(8, 3, pad_mode='same', group=8)", "op(p0, p1)", _IMAGES + _floats((8, 1, 3, 3)), accepts_more=True
    ),
    "Conv2DExt": Case(
        "gen.Conv2DExt()", "op(p0, p1, None, (1, 1), (1, 1), (1, 1), 1)", _IMAGES + _floats((16, 8, 3, 3)), ignores_strategy=True
    ),
    "Conv2DTranspose": Case(
        "ops.Conv2DTranspose(8, 2, stride=2)", "op(p0, p1, (16, 32, 16, 16))", _IMAGES + _floats((8, 32, 2, 2))
    ),
    "Conv2DBackpropInput": Case(
        "ops.Conv2DBackpropInput(8, 2, stride=2)", "op(p0, p1, (16, 32, 16, 16))", _IMAGES + _floats((8, 32, 2, 2))
    ),
    "Conv3DTranspose": Case(
        "ops.Conv3DTranspose(4, 8, 2, stride=2)", "op(p0, p1)", _tensors("float16", (8, 4, 4, 4, 4), (4, 8, 2, 2, 2)),
        ignores_strategy=True,
    ),
    "ConvTranspose2D": Case(
        "gen.ConvTranspose2D()", "op(p0, p1, None, (2, 2), (0, 0), (0, 0), 1, (1, 1))", _IMAGES + _floats((8, 16, 2, 2)),
        ignores_strategy=True,
    ),
    "Conv3D": Case(
        "ops.Conv3D(16, (2, 4, 4), stride=(2, 4, 4))", "op(p0, p1)", _tensors("float16", (8, 4, 8, 8, 8), (16, 4, 2, 4, 4)),
        accepts_more=True,
    ),
    "Conv1DExt": Case(
        "gen.Conv1DExt()", "op(p0, p1, None, 1, 1, 1, 1)", _floats((16, 8, 32), (16, 8, 3)), ignores_strategy=True
    ),
    "Conv3DExt": Case(
        "gen.Conv3DExt()", "op(p0, p1, None, 1, 0, 1, 1)", _floats((8, 4, 8, 8, 8), (16, 4, 2, 2, 2)), ignores_strategy=True
    ),
    "MaxPool": Case("ops.MaxPool(2, 2)", "op(p0)", _IMAGES, accepts_more=True),
    "MaxPool same": Case("ops.MaxPool(3, 2, 'same')", "op(p0)", _IMAGES),
    "MaxPoolWithMask": Case("gen.MaxPoolWithMask((2, 2), (2, 2))", "op(p0)", _IMAGES, ignores_strategy=True),
    "MaxPoolWithArgmaxV2": Case("ops.MaxPoolWithArgmaxV2(2, 2)", "op(p0)", _tensors("float16", (16, 8, 8, 8)), True),
    "MaxPool3DWithArgmax": Case(
        "ops.MaxPool3DWithArgmax(2, 2, (0, 0, 0))", "op(p0)", _floats((8, 4, 8, 8, 8)), ignores_strategy=True
    ),
    "AvgPool": Case("ops.AvgPool(2, 2)", "op(p0)", _IMAGES, accepts_more=True),
    "AvgPool2D": Case(
        "gen.AvgPool2D()", "op(p0, (2, 2), (2, 2), (0, 0), False, True, None)", _IMAGES, ignores_strategy=True
    ),
    "AvgPool3D": Case("ops.AvgPool3D(2, 2)", "op(p0)", _floats((8, 4, 8, 8, 8)), accepts_more=True),
    "AdaptiveAvgPool2D": Case("ops.AdaptiveAvgPool2D((1, 1))", "op(p0)", _IMAGES, ignores_strategy=True),
    "ResizeBilinearV2": Case("ops.ResizeBilinearV2()", "op(p0, (16, 16))", _IMAGES, accepts_more=True),
    "ResizeNearestNeighbor": Case("ops.ResizeNearestNeighbor((16, 16))", "op(p0)", _IMAGES, accepts_more=True),
    "ResizeNearestNeighborV2": Case("ops.ResizeNearestNeighborV2()", "op(p0, (16, 16))", _IMAGES, ignores_strategy=True),
    "UpsampleNearest2D": Case("gen.UpsampleNearest2D()", "op(p0, (16, 16), None)", _IMAGES, ignores_strategy=True),
    "UpsampleBilinear2D": Case("gen.UpsampleBilinear2D()", "op(p0, (16, 16), None, False)", _IMAGES, ignores_strategy=True),
    "ReflectionPad2D": Case("gen.ReflectionPad2D()", "op(p0, (1, 1, 1, 1))", _IMAGES, ignores_strategy=True),
    "ReplicationPad2D": Case("gen.ReplicationPad2D()", "op(p0, (1, 1, 1, 1))", _IMAGES, ignores_strategy=True),
    "Col2Im": Case("ops.Col2Im(2, 1, 0, 2)", "op(p0, Tensor((8, 8), ms.int32))", _floats((16, 8, 4, 16)), ignores_strategy=True),
    "Im2Col": Case("ops.Im2Col(2)", "op(p0)", _IMAGES, ignores_strategy=True),
    # elementwise
    **{name: Case(f"ops.{name}()", "op(p0, p1)", _PAIR) for name in _ARITHMETIC},
    **{name: Case("ops.Dropout(0.9)" if name == "Dropout" else f"ops.{name}()", "op(p0)", _MATRIX) for name in _UNARY},
    "Add broadcast": Case("ops.Add()", "op(p0, p1)", _floats((16, 1, 8), (32, 8))),
    "Mul scalar": Case("ops.Mul()", "op(p0, 2.0)", _MATRIX),
    "AddExt": Case("gen.AddExt()", "op(p0, p1, 1)", _floats((16, 32), (32,))),
    "SubExt": Case("gen.SubExt()", "op(p0, p1, 1)", _floats((16, 32), (32,))),
    "Muls": Case("gen.Muls()", "op(p0, 2.0)", _MATRIX),
    "AddN": Case("ops.AddN()", "op((p0, p1))", _PAIR),
    "BiasAdd": Case("ops.BiasAdd()", "op(p0, p1)", _floats((16, 32), (32,))),
    "BiasAdd of images": Case("ops.BiasAdd()", "op(p0, p1)", _floats((16, 32, 8, 8), (32,))),
    "SiLU": Case("gen.SiLU()", "op(p0)", _MATRIX),
    "Swiglu": Case("gen.Swiglu()", "op(p0, -1)", _MATRIX),
    "LogicalAnd": Case("ops.LogicalAnd()", "op(p0, p1)", _tensors("bool", (16, 32), (16, 1))),
    "LogicalOr": Case("ops.LogicalOr()", "op(p0, p1)", _tensors("bool", (16, 32), (32,))),
    "LogicalNot": Case("ops.LogicalNot()", "op(p0)", _tensors("bool", (16, 32))),
    "Select": Case("ops.Select()", "op(p0, p1, p2)", _tensors("bool", (16, 32)) + _PAIR),
    "Select broadcast": Case("ops.Select()", "op(p0, p1, p2)", _tensors("bool", (16, 1)) + _PAIR),
    "Select of rows": Case("ops.Select()", "op(p0, p1, p2)", _tensors("bool", (1, 32)) + _PAIR),
    "Select number": Case("ops.Select()", "op(p0, p1, p2)", _tensors("bool", (16, 32)) + _MATRIX + _floats(())),
    "MaskedFill": Case("ops.MaskedFill()", "op(p0, p1, 2.0)", _MATRIX + _tensors("bool", (1, 32))),
    **{
        name: Case(f"{'ops' if name in _OF_OPS else 'gen'}.{name}()", call, _MATRIX, True)
        for name, call in _BATCH_ONLY.items()
    },
    **{name: Case(f"ops.{name}()", "op(p0, p1)", _tensors("int32", (16, 32), (32,))) for name in _BITWISE},
    "IsClose": Case("ops.IsClose()", "op(p0, p1)", _PAIR),
    "NanToNum": Case("ops.NanToNum(0.0, 1.0, -1.0)", "op(p0)", _MATRIX),
    "Logit": Case("ops.Logit(0.1)", "op(p0)", _MATRIX, ignores_strategy=True),
    "BitwiseNot": Case("gen.BitwiseNot()", "op(p0)", _tensors("int32", (16, 32)), ignores_strategy=True),
    "Complex": Case("ops.Complex()", "op(p0, p1)", _floats((12, 32), (12, 32)), ignores_strategy=True),
    "LogAddExp": Case("gen.LogAddExp()", "op(p0, p1)", _floats((16, 32), (32,)), ignores_strategy=True),
    "LerpScalar": Case("gen.LerpScalar()", "op(p0, p1, 0.5)", _floats((16, 32), (32,)), ignores_strategy=True),
    "ClampTensor": Case("gen.ClampTensor()", "op(p0, p1, p2)", _floats((16, 32), (32,), (32,)), ignores_strategy=True),
    "Addcmul": Case("ops.Addcmul()", "op(p0, p1, p2, p3)", _floats((16, 32), (32,), (32,), (1,)), ignores_strategy=True),
    "Addcdiv": Case("ops.Addcdiv()", "op(p0, p1, p2, p3)", _floats((16, 32), (32,), (32,), (1,)), ignores_strategy=True),
    "AddcdivExt": Case("gen.AddcdivExt()", "op(p0, p1, p2, 1)", _floats((16, 32), (32,), (32,)), ignores_strategy=True),
    "SelectV2": Case("gen.SelectV2()", "op(p0, p1, p2)", _tensors("bool", (16, 32)) + _floats((32,), (32,)), True),
    "GLU": Case("gen.GLU(-1)", "op(p0)", _MATRIX, ignores_strategy=True),
    "RotaryPositionEmbedding": Case(
        "gen.RotaryPositionEmbedding()", "op(p0, p1, p2, 0)", _floats((16, 8, 8, 32), (1, 1, 8, 32), (1, 1, 8, 32))
    ),
    "Divs undivided": Case("gen.Divs()", "op(p0, 2.0)", _floats((12, 32)), ignores_strategy=True),
    "Tril": Case("ops.Tril()", "op(p0)", _floats((16, 8, 8)), accepts_more=True),
    "TrilExt": Case("gen.TrilExt()", "op(p0)", _floats((16, 8, 8)), ignores_strategy=True),
    "EluExt": Case("gen.EluExt()", "op(p0)", _MATRIX),
    "SoftplusExt": Case("gen.SoftplusExt()", "op(p0)", _MATRIX),
    "LeakyReLUExt": Case("gen.LeakyReLUExt()", "op(p0)", _MATRIX),
    "ClampScalar": Case("gen.ClampScalar()", "op(p0, 0.0, 1.0)", _MATRIX),
    "RemainderTensorScalar": Case("gen.RemainderTensorScalar()", "op(p0, 2.0)", _MATRIX),
    "Lerp": Case("ops.Lerp()", "op(p0, p1, p2)", _PAIR + _MATRIX),
    "PReLU": Case("ops.PReLU()", "op(p0, p1)", _floats((16, 8, 4), (8,))),
    "PReLU one weight": Case("ops.PReLU()", "op(p0, p1)", _floats((16, 8, 4), (1,))),
    "MaskedFillScalar": Case(
        "gen.MaskedFillScalar()", "op(p0, p1, 2.0)", _floats((16, 8, 32)) + _tensors("bool", (8, 32)), ignores_strategy=True
    ),
    "Add smaller first": Case("ops.Add()", "op(p0, p1)", _floats((8, 16), (4, 8, 16))),
    "AssignAdd": Case("ops.AssignAdd()", "op(p0, p1)", _PAIR),
    # in place
    **{
        name: Case(f"gen.{name}()", call, _ROW)
        for name, call in {
            "InplaceAddExt": "op(p0, p1, 1)", "InplaceSubExt": "op(p0, p1, 1)", "InplaceMul": "op(p0, p1)",
            "InplaceDiv": "op(p0, p1)", "InplaceFloorDivide": "op(p0, p1)", "InplaceCopy": "op(p0, p1)",
            "FmodTensor": "op(p0, p1)", "RemainderTensorTensor": "op(p0, p1)", "NextAfter": "op(p0, p1)",
            "DivMod": "op(p0, p1, 'floor')",
        }.items()
    },
    **{
        name: Case(f"gen.{name}()", call, _MATRIX)
        for name, call in {
            "InplaceMuls": "op(p0, 2.0)", "InplaceDivs": "op(p0, 2.0)", "InplaceFloorDivides": "op(p0, 2.0)",
            "InplaceAddsExt": "op(p0, 2.0, 1)", "InplaceSubScalar": "op(p0, 2.0, 1)", "RemainderScalarTensor": "op(2.0, p0)",
        }.items()
    },
    **{
        name: Case(f"gen.{name}()", call, _ROW, ignores_strategy=True)
        for name, call in {
            "InplaceRemainderTensorTensor": "op(p0, p1)", "InplaceDivMod": "op(p0, p1, 'floor')", "Atan2Ext": "op(p0, p1)",
            "LogAddExp2": "op(p0, p1)",
        }.items()
    },
    "InplaceClampTensor": Case("gen.InplaceClampTensor()", "op(p0, p1, p2)", _floats((16, 32), (32,), (32,)), True),
    "InplaceMaskedFillScalar": Case(
        "gen.InplaceMaskedFillScalar()", "op(p0, p1, 2.0)", _MATRIX + _tensors("bool", (32,)), ignores_strategy=True
    ),
    "InplaceMaskedFillTensor": Case(
        "gen.InplaceMaskedFillTensor()", "op(p0, p1, p2)", _MATRIX + _tensors("bool", (32,)) + _floats(()), ignores_strategy=True
    ),
    "InplaceFillTensor": Case("gen.InplaceFillTensor()", "op(p0, p1)", _floats((16, 32), ()), ignores_strategy=True),
    "AddcmulExt": Case("gen.AddcmulExt()", "op(p0, p1, p2, 1)", _floats((16, 32), (32,), (32,))),
    "Polar": Case("gen.Polar()", "op(p0, p1)", _PAIR),
    "BesselI0e": Case("ops.BesselI0e()", "op(p0)", _MATRIX),
    **{
        name: Case(f"gen.{name}()", call, _tensors("int32", (16, 32), (32,)), ignores_strategy=True)
        for name, call in {f"Bitwise{kind}Tensor": "op(p0, p1)" for kind in ("And", "Or", "Xor")}.items()
    },
    # creation
    **{
        name: Case(f"gen.{name}()", call, types, accepts_more=True)
        for name, (call, types) in {
            "FillScalar": ("op((16, 32), 0.5, None)", ()), "FillTensor": ("op((16, 32), p0, None)", _floats(())),
            "Empty": ("op((16, 32), None)", ()), "RandExt": ("op((16, 32), p0, p1, None)", _SEEDS),
            "Randn": ("op((16, 32), p0, p1, None)", _SEEDS),
        }.items()
    },
    "StandardNormal": Case("ops.StandardNormal()", "op((16, 32))", ()),
    "StandardNormal undivided": Case("ops.StandardNormal()", "op((12, 32))", ()),
    "UniformReal": Case("ops.UniformReal()", "op((16, 32))", ()),
    "FillV2": Case("ops.FillV2()", "op(Tensor((16, 32), ms.int64), p1)", _floats((), ())),
    "LinSpace": Case("ops.LinSpace()", "op(p0, p1, 32)", _floats((), ()), accepts_more=True),
    "LinSpaceExt": Case("gen.LinSpaceExt()", "op(0.0, 1.0, 32, None)", ()),
    "NormalFloatFloat": Case(
        "gen.NormalFloatFloat()", "op(0.0, 1.0, (16, 32), p0, p1)", _tensors("int64", (1,), (1,)), accepts_more=True
    ),
    "NewZeros undivided": Case("gen.NewZeros()", "op(p0, (16, 32), None)", _floats((9, 32)), ignores_strategy=True),
    "RandLikeExt": Case("gen.RandLikeExt()", "op(p0, p1, p2, None)", _MATRIX + _SEEDS, ignores_strategy=True),
    "Dropout2D": Case("ops.Dropout2D(0.9)", "op(p0)", _IMAGES, ignores_strategy=True),
    "Meshgrid": Case("gen.Meshgrid('ij')", "op((p0, p1))", _floats((16,), (32,)), ignores_strategy=True),
    # products that are added, of undivided first dims
    "Addmm undivided": Case("gen.Addmm()", "op(p0, p1, p2, 1, 1)", _floats((9,), (5, 32), (32, 9)), ignores_strategy=True),
    "Baddbmm of one row": Case(
        "gen.Baddbmm()", "op(p0, p1, p2, 1, 1)", _floats((1, 1, 8), (8, 16, 32), (8, 32, 8)), ignores_strategy=True
    ),
    "Cdist matrices": Case("gen.Cdist(2.0)", "op(p0, p1)", _floats((16, 32), (4, 32))),
    "Cdist": Case("gen.Cdist(2.0)", "op(p0, p1)", _floats((8, 16, 32), (8, 4, 32))),
    "Mv": Case("gen.Mv()", "op(p0, p1)", _floats((16, 32), (32,)), ignores_strategy=True),
    "Ger": Case("ops.Ger()", "op(p0, p1)", _floats((16,), (32,)), ignores_strategy=True),
    # recurrent, of an undivided time
    "DynamicRNN undivided": Case(
        "ops.DynamicRNN()", "op(p0, p1, p2, None, p3, p4)",
        _tensors("float16", (9, 16, 32), (96, 256), (256,), (1, 16, 64), (1, 16, 64)), ignores_strategy=True,
    ),
    "DynamicGRUV2 undivided": Case(
        "ops.DynamicGRUV2()", "op(p0, p1, p2, p3, p4, None, p5)",
        _tensors("float16", (9, 16, 32), (32, 192), (64, 192), (192,), (192,), (16, 64)), ignores_strategy=True,
    ),
    # images and volumes
    "Convolution": Case(
        "gen.Convolution()", "op(p0, p1, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)", _IMAGES + _floats((16, 8, 3, 3)),
        accepts_more=True,
    ),
    "Convolution undivided": Case(
        "gen.Convolution()", "op(p0, p1, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)", _floats((12, 8, 8, 8), (16, 8, 3, 3)),
        accepts_more=True,
    ),
    "ConvolutionStr": Case(
        "gen.ConvolutionStr()", "op(p0, p1, None, (1, 1), 'same', (1, 1), False, (0, 0), 1)", _IMAGES + _floats((16, 8, 3, 3)),
        ignores_strategy=True,
    ),
    **{name: Case(f"gen.{name}()", call, _IMAGES, ignores_strategy=True) for name, call in _ON_IMAGES.items()},
    "AdaptiveMaxPool2D": Case("gen.AdaptiveMaxPool2D((1, 1))", "op(p0)", _IMAGES, ignores_strategy=True),
    "MaxPoolWithIndices": Case("gen.MaxPoolWithIndices((2, 2), (2, 2))", "op(p0)", _IMAGES, ignores_strategy=True),
    "AdaptiveAvgPool1D": Case("gen.AdaptiveAvgPool1D()", "op(p0, 1)", _LINES, ignores_strategy=True),
    "AdaptiveMaxPool1D": Case("gen.AdaptiveMaxPool1D()", "op(p0, 1)", _LINES, ignores_strategy=True),
    "AvgPool1D": Case("gen.AvgPool1D()", "op(p0, (2,), (2,), (0,), False, True)", _LINES, ignores_strategy=True),
    "UpsampleLinear1D": Case("gen.UpsampleLinear1D()", "op(p0, (64,), None, False)", _LINES, ignores_strategy=True),
    "Col2ImExt": Case(
        "gen.Col2ImExt()", "op(p0, (8, 8), (2, 2), (1, 1), (0, 0), (2, 2))", _floats((16, 32, 16)), ignores_strategy=True
    ),
    "AdaptiveAvgPool3D": Case("ops.AdaptiveAvgPool3D((1, 1, 1))", "op(p0)", _VOLUMES, ignores_strategy=True),
    "MaxPool3D": Case("ops.MaxPool3D(2, 2)", "op(p0)", _VOLUMES, accepts_more=True),
    "UpsampleNearest3D": Case("gen.UpsampleNearest3D()", "op(p0, (16, 16, 16), None)", _VOLUMES, ignores_strategy=True),
    "UpsampleTrilinear3D": Case("gen.UpsampleTrilinear3D(False)", "op(p0, (16, 16, 16), None)", _VOLUMES, ignores_strategy=True),
    "GridSampler2D": Case(
        "gen.GridSampler2D('bilinear', 'zeros', False)", "op(p0, p1)", _IMAGES + _floats((16, 4, 4, 2)), accepts_more=True
    ),
    "SpaceToDepth": Case("ops.SpaceToDepth(2)", "op(p0)", _IMAGES, ignores_strategy=True),
    "LRN": Case("ops.LRN()", "op(p0)", _IMAGES, ignores_strategy=True),
    # normalization
    "LayerNormV3": Case("gen.LayerNormV3(1, 1)", "op(p0, p1, p2)", _floats((16, 32), (32,), (32,))),
    **{
        f"BatchNormExt {name}": Case(
            "gen.BatchNormExt()", "op(p0, p1, p2, p3, p4, True, 0.1, 1e-5)", _floats((n, c, 4, 4), (c,), (c,), (c,), (c,)),
            ignores_strategy=True,
        )
        for name, n, c in (("of undivided samples", 9, 16), ("of undivided channels", 16, 9))
    },
    "RmsNorm": Case("ops.RmsNorm()", "op(p0, p1)", _floats((16, 8, 32), (32,)), replaced_where_partial=True),
    "RmsNorm half": Case("ops.RmsNorm()", "op(p0, p1)", _tensors("float16", (16, 32), (32,)), replaced_where_partial=True),
    "LayerNorm": Case("ops.LayerNorm(-1, -1)", "op(p0, p1, p2)", _floats((16, 8, 32), (32,), (32,))),
    "LayerNorm two dims": Case("ops.LayerNorm(1, 1)", "op(p0, p1, p2)", _floats((16, 8, 32), (8, 32), (8, 32))),
    "GroupNorm": Case("gen.GroupNorm()", "op(p0, 4, p1, p2)", _floats((16, 8, 4, 4), (8,), (8,))),
    "BatchNorm": Case(
        "ops.BatchNorm(is_training=True)", "op(p0, p1, p2, p3, p4)", _floats((16, 8, 4, 4), (8,), (8,), (8,), (8,)),
        accepts_more=True,
    ),
    "L2Normalize": Case("ops.L2Normalize(1)", "op(p0)", _MATRIX),
    "Softmax": Case("ops.Softmax()", "op(p0)", _floats((16, 8, 32))),
    "Softmax first dim": Case("ops.Softmax(0)", "op(p0)", _floats((16, 8, 32))),
    "LogSoftmax": Case("ops.LogSoftmax()", "op(p0)", _MATRIX),
    # reduction
    "ReduceSum": Case("ops.ReduceSum()", "op(p0, -1)", _floats((16, 8, 32))),
    "ReduceSum to scalar": Case("ops.ReduceSum()", "op(p0)", _MATRIX),
    "ReduceSum two dims": Case("ops.ReduceSum(keep_dims=True)", "op(p0, (0, 2))", _floats((16, 8, 32))),
    "ReduceMean": Case("ops.ReduceMean()", "op(p0, -1)", _MATRIX),
    "ReduceMax": Case("ops.ReduceMax(keep_dims=True)", "op(p0, -1)", _MATRIX),
    "ReduceMin": Case("ops.ReduceMin()", "op(p0, 0)", _MATRIX),
    "SumExt": Case("gen.SumExt()", "op(p0, (1,), False)", _MATRIX),
    "MeanExt": Case("gen.MeanExt()", "op(p0, (1,), True)", _MATRIX),
    "ReduceProd": Case("ops.ReduceProd()", "op(p0, 1)", _MATRIX),
    "Max": Case("gen.Max()", "op(p0)", _MATRIX),
    "Min": Case("gen.Min()", "op(p0)", _MATRIX, ignores_strategy=True),
    "MaxDim": Case("gen.MaxDim()", "op(p0, 1, False)", _MATRIX),
    "MinDim": Case("gen.MinDim()", "op(p0, 1, True)", _MATRIX, ignores_strategy=True),
    "Argmax": Case("ops.Argmax()", "op(p0)", _MATRIX, accepts_more=True),
    "ArgMaxExt": Case("gen.ArgMaxExt()", "op(p0, 1, False)", _MATRIX, ignores_strategy=True),
    "ProdExt": Case("gen.ProdExt()", "op(p0, 1)", _MATRIX, ignores_strategy=True),
    "LogSumExp": Case("gen.LogSumExp()", "op(p0, (1,), True)", _MATRIX, ignores_strategy=True),
    "LogSumExp to row": Case("gen.LogSumExp()", "op(p0, (0,), True)", _MATRIX, ignores_strategy=True),
    "Var": Case("gen.Var()", "op(p0, (1,), 1, False)", _MATRIX, ignores_strategy=True),
    "LinalgVectorNorm": Case("gen.LinalgVectorNorm()", "op(p0, 2.0, (1,), False)", _MATRIX, ignores_strategy=True),
    "LpNorm": Case("ops.LpNorm(1)", "op(p0)", _MATRIX, ignores_strategy=True),
    "Norm": Case("gen.Norm()", "op(p0, 2.0, (1,), True, None)", _MATRIX, ignores_strategy=True),
    "Std": Case("gen.Std()", "op(p0, (1,), 1, False)", _MATRIX, ignores_strategy=True),
    "VarMean": Case("gen.VarMean()", "op(p0, (1,), 1, True)", _MATRIX, ignores_strategy=True),
    "StdMean": Case("gen.StdMean()", "op(p0, (1,), 1, False)", _MATRIX, ignores_strategy=True),
    "ArgSort": Case("gen.ArgSort()", "op(p0, 1, False, False)", _MATRIX, ignores_strategy=True),
    "Cummax": Case("ops.Cummax(1)", "op(p0)", _MATRIX),
    "Cummin": Case("ops.Cummin(1)", "op(p0)", _MATRIX),
    "FFT": Case("gen.FFT()", "op(p0, None, -1, None)", _floats((16, 8, 32))),
    "FFT2": Case("gen.FFT2()", "op(p0, None, (-2, -1), None)", _floats((16, 8, 32))),
    "RFFT": Case("gen.RFFT()", "op(p0, None, 1, None)", _floats((16, 8, 32))),
    "Sort": Case("ops.Sort()", "op(p0)", _MATRIX),
    "SortExt": Case("gen.SortExt()", "op(p0, 1, False, False)", _MATRIX),
    "ReduceAny": Case("ops.ReduceAny()", "op(p0, 1)", _tensors("bool", (16, 32))),
    "ReduceAll": Case("ops.ReduceAll()", "op(p0, 1)", _tensors("bool", (16, 32))),
    "ArgMaxWithValue": Case("ops.ArgMaxWithValue(axis=1)", "op(p0)", _MATRIX),
    "ArgMinWithValue": Case("ops.ArgMinWithValue(axis=0, keep_dims=True)", "op(p0)", _MATRIX),
    "TopK": Case("ops.TopK()", "op(p0, 4)", _MATRIX),
    "TopkExt": Case("gen.TopkExt()", "op(p0, 4, 0, True, True)", _MATRIX),
    "CumSum": Case("ops.CumSum()", "op(p0, 1)", _MATRIX),
    "CumsumExt": Case("gen.CumsumExt()", "op(p0, 1)", _MATRIX),
    "CumProd": Case("ops.CumProd()", "op(p0, 1)", _MATRIX),
    "L2Loss": Case("ops.L2Loss()", "op(p0)", _MATRIX),
    "Any": Case("gen.Any()", "op(p0)", _tensors("bool", (16, 32))),
    "Median": Case("ops.Median(False, 1)", "op(p0)", _MATRIX, ignores_strategy=True),
    "ReduceStd": Case("gen.ReduceStd([1])", "op(p0)", _MATRIX, ignores_strategy=True),
    # shape
    "DiagonalView": Case("gen.DiagonalView()", "op(p0, 0, 1, 2)", _floats((16, 8, 8)), ignores_strategy=True),
    "Pad": Case("ops.Pad(((0, 0), (1, 1)))", "op(p0)", _MATRIX, ignores_strategy=True),
    "MirrorPad": Case("ops.MirrorPad()", "op(p0, Tensor(((0, 0), (1, 1)), ms.int64))", _MATRIX, ignores_strategy=True),
    "Repeat more dims": Case("gen.Repeat()", "op(p0, (3, 1, 1))", _MATRIX, ignores_strategy=True),
    "MatrixInverseExt": Case("gen.MatrixInverseExt()", "op(p0)", _floats((16, 8, 8)), ignores_strategy=True),
    "Eye": Case("ops.Eye()", "op(16, 32, ms.float32)", (), accepts_more=True),
    "Transpose": Case("ops.Transpose()", "op(p0, (0, 2, 1, 3))", _floats((8, 8, 16, 32))),
    "ExpandDims": Case("ops.ExpandDims()", "op(p0, 1)", _MATRIX),
    "Squeeze": Case("ops.Squeeze(1)", "op(p0)", _floats((16, 1, 32))),
    "StridedSlice": Case("ops.StridedSlice()", "op(p0, (0, 0, 16), (8, 16, 32), (1, 1, 1))", _floats((8, 16, 32))),
    "StridedSlice masks": Case(
        "ops.StridedSlice(begin_mask=3, end_mask=1, shrink_axis_mask=2)", "op(p0, (0, 0), (8, 8), (1, 1))", _floats((8, 16, 32))
    ),
    "StridedSlice new axis": Case(
        "ops.StridedSlice(new_axis_mask=2)", "op(p0, (0, 0, 0), (8, 8, 16), (1, 1, 1))", _floats((8, 16, 32))
    ),
    "StridedSlice two steps": Case("ops.StridedSlice()", "op(p0, (0, 1, 0), (8, 16, 32), (1, 2, 2))", _floats((8, 16, 32))),
    "StridedSlice steps": Case("ops.StridedSlice()", "op(p0, (0, 0), (8, 16), (1, 2))", _floats((8, 16, 32))),
    "Slice": Case("ops.Slice()", "op(p0, (0, 0), (16, 8))", _MATRIX),
    "Split": Case("ops.Split(1, 2)", "op(p0)", _floats((8, 16, 32))),
    "SplitWithSize": Case("gen.SplitWithSize()", "op(p0, (4, 28), 1)", _MATRIX),
    "SplitTensor": Case("gen.SplitTensor()", "op(p0, 16, 1)", _MATRIX),
    "Concat": Case("ops.Concat(axis=-1)", "op((p0, p1))", _floats((8, 16, 32), (8, 16, 8))),
    "Stack": Case("ops.Stack(axis=1)", "op((p0, p1))", _PAIR),
    "StackExt": Case("gen.StackExt(1)", "op((p0, p1))", _PAIR),
    "SliceExt": Case("gen.SliceExt()", "op(p0, 1, 0, 4, 1)", _floats((8, 16, 32))),
    "PadV3": Case("ops.PadV3()", "op(p0, (1, 1), 0.0)", _MATRIX),
    "PadV3 of a tensor": Case("ops.PadV3()", "op(p0, (1, 1), Tensor(0.0, ms.float32))", _MATRIX),
    "ReverseV2": Case("ops.ReverseV2([1])", "op(p0)", _MATRIX),
    "RepeatInterleaveInt": Case("gen.RepeatInterleaveInt()", "op(p0, 2, 1, None)", _floats((8, 16, 32))),
    "TransposeView": Case("ops.TransposeView()", "op(p0, (0, 2, 1))", _floats((16, 8, 32)), ignores_strategy=True),
    "TransposeExtView": Case("ops.TransposeExtView()", "op(p0, 1, 2)", _floats((16, 8, 32)), ignores_strategy=True),
    "TExt undivided": Case("gen.TExt()", "op(p0)", _floats((9, 30)), ignores_strategy=True),
    "ExpandDimsView": Case("gen.ExpandDimsView()", "op(p0, 1)", _MATRIX, ignores_strategy=True),
    "SplitWithSizeView": Case("gen.SplitWithSizeView()", "op(p0, (4, 28), 1)", _MATRIX, ignores_strategy=True),
    "SliceExtView": Case("gen.SliceExtView()", "op(p0, 1, 0, 4, 1)", _floats((8, 16, 32)), ignores_strategy=True),
    "Flatten": Case("ops.Flatten()", "op(p0)", _floats((16, 8, 32)), ignores_strategy=True),
    "FlattenExt": Case("gen.FlattenExt()", "op(p0, 0, 1)", _floats((16, 8, 32)), ignores_strategy=True),
    "SplitTensorView": Case("gen.SplitTensorView()", "op(p0, 16, 1)", _MATRIX, ignores_strategy=True),
    "ChunkView": Case("gen.ChunkView()", "op(p0, 2, 1)", _MATRIX, ignores_strategy=True),
    "SelectExtView": Case("gen.SelectExtView()", "op(p0, 1, 0)", _floats((16, 8, 32)), ignores_strategy=True),
    "Unstack": Case("ops.Unstack(1, 4)", "op(p0)", _floats((16, 4, 32)), ignores_strategy=True),
    "UnstackExtView": Case("gen.UnstackExtView()", "op(p0, 1)", _floats((16, 4, 32)), ignores_strategy=True),
    "NarrowView": Case("gen.NarrowView()", "op(p0, 1, 0, 4)", _MATRIX, ignores_strategy=True),
    "ConstantPadND": Case("gen.ConstantPadND()", "op(p0, (1, 1), 0.0)", _MATRIX, ignores_strategy=True),
    "Roll": Case("ops.Roll(1, 1)", "op(p0)", _MATRIX, ignores_strategy=True),
    "Tile": Case("ops.Tile()", "op(p0, (1, 1, 4, 1))", _floats((8, 4, 1, 16))),
    "Tile copies": Case("ops.Tile()", "op(p0, (4, 2))", _MATRIX),
    "Tile more dims": Case("ops.Tile()", "op(p0, (4, 1, 1))", _MATRIX),
    "BroadcastTo": Case("ops.BroadcastTo((8, 16, 32))", "op(p0)", _floats((16, 1))),
    # indexing
    "Gather": Case("ops.Gather()", "op(p0, p1, 0)", _floats((64, 32)) + _tensors("int32", (16,))),
    "Gather rows": Case("ops.Gather()", "op(p0, p1, 0)", _floats((64, 32)) + _tensors("int32", (16, 8))),
    "Gather few rows": Case("ops.Gather()", "op(p0, p1, 0)", _floats((64, 32)) + _tensors("int32", (2, 8))),
    "Gather of 64-bit indices": Case("ops.Gather()", "op(p0, p1, 0)", _floats((64, 32)) + _tensors("int64", (16, 8))),
    "Gather three dims": Case("ops.Gather()", "op(p0, p1, 0)", _floats((64, 32)) + _tensors("int32", (4, 8, 2))),
    "Gather second dim": Case("ops.Gather()", "op(p0, p1, 1)", _floats((16, 64)) + _tensors("int32", (16,))),
    "Gather middle dim": Case("ops.Gather()", "op(p0, p1, 1)", _floats((8, 16, 32)) + _tensors("int32", (16,))),
    "Gather batch dims": Case("ops.Gather(batch_dims=1)", "op(p0, p1, 1)", _floats((8, 16, 32)) + _tensors("int32", (8, 4))),
    "Gather batch dims, rows": Case(
        "ops.Gather(batch_dims=1)", "op(p0, p1, 1)", _floats((8, 16, 32)) + _tensors("int32", (8, 4, 8))
    ),
    "IndexSelect": Case("gen.IndexSelect()", "op(p0, 0, p1)", _MATRIX + _tensors("int32", (8,)), accepts_more=True),
    "GatherD": Case("ops.GatherD()", "op(p0, 1, p1)", _MATRIX + _tensors("int32", (16, 4))),
    "GatherD of 64-bit indices": Case("ops.GatherD()", "op(p0, 1, p1)", _MATRIX + _tensors("int64", (16, 4))),
    "Embedding": Case("gen.Embedding()", "op(p0, p1, None, None, 2.0, False)", _tensors("int32", (16, 8)) + _floats((64, 32))),
    "Embedding of 64-bit indices": Case(
        "gen.Embedding()", "op(p0, p1, None, None, 2.0, False)", _tensors("int64", (16, 8)) + _floats((64, 32))
    ),
    "TensorScatterElements": Case(
        "ops.TensorScatterElements(1, 'add')", "op(p0, p1, p2)",
        _floats((9, 32)) + _tensors("int32", (9, 4)) + _floats((9, 4)), ignores_strategy=True,
    ),
    "IndexAddExt": Case("gen.IndexAddExt()", "op(p0, 1, p1, p2, 1)", _MATRIX + _tensors("int32", (8,)) + _floats((16, 8))),
    "IndexAddExt rows": Case("gen.IndexAddExt()", "op(p0, 0, p1, p2, 1)", _MATRIX + _tensors("int32", (8,)) + _floats((8, 32))),
    "GatherNd": Case("ops.GatherNd()", "op(p0, p1)", _floats((64, 32)) + _tensors("int32", (16, 8, 1))),
    "UnsortedSegmentSum": Case("ops.UnsortedSegmentSum()", "op(p0, p1, 8)", _MATRIX + _tensors("int32", (16,))),
    "UnsortedSegmentSum rows": Case(
        "ops.UnsortedSegmentSum()", "op(p0, p1, 8)", _floats((16, 8, 32)) + _tensors("int32", (16, 8))
    ),
    **{
        name: Case(f"ops.{name}()", "op(p0, p1, p2)", _MATRIX + _tensors("int32", (8, 1)) + _floats((8, 32)), accepts_more=True)
        for name in _SCATTERS
    },
    "OneHot": Case("ops.OneHot()", f"op(p0, 32, {_ONE_HOT_SCALARS})", _tensors("int32", (16,))),
    "OneHot of 64-bit indices": Case("ops.OneHot()", f"op(p0, 32, {_ONE_HOT_SCALARS})", _tensors("int64", (16,))),
    "OneHot first axis": Case("ops.OneHot(axis=0)", f"op(p0, 32, {_ONE_HOT_SCALARS})", _tensors("int32", (16,))),
    "OneHot rows": Case("ops.OneHot()", f"op(p0, 32, {_ONE_HOT_SCALARS})", _tensors("int32", (16, 8))),
    "OneHotExt undivided": Case(
        "gen.OneHotExt(-1)", "op(p0, 32, Tensor(1, ms.int64), Tensor(0, ms.int64))", _tensors("int64", (6, 8))
    ),
    "OneHotExt": Case("gen.OneHotExt(-1)", "op(p0, 32, Tensor(1, ms.int64), Tensor(0, ms.int64))", _tensors("int64", (16,))),
    # routing
    "TopKRouter": Case("gen.TopKRouter()", "op(p0, 8, 4, 0)", _tensors("int32", (8, 16, 2))),
    # attention
    "FlashAttentionScore BNSD": _attention("BNSD", (4, 8, 32, 16), (4, 8, 32, 16)),
    "FlashAttentionScore BNSD GQA": _attention("BNSD", (4, 8, 32, 16), (4, 2, 32, 16)),
    "FlashAttentionScore BNSD MQA": _attention("BNSD", (4, 8, 32, 16), (4, 1, 32, 16)),
    "FlashAttentionScore BSH GQA": _attention("BSH", (4, 32, 128), (4, 32, 64)),
    "FlashAttentionScore SBH": _attention("SBH", (32, 4, 128), (32, 4, 128)),
    "FlashAttentionScore BSND": _attention("BSND", (4, 32, 8, 16), (4, 32, 8, 16)),
    "FlashAttentionScore BSND GQA": _attention("BSND", (4, 32, 8, 16), (4, 32, 2, 16)),
    "FlashAttentionScore BSND causal": _attention("BSND", (4, 32, 8, 16), (4, 32, 8, 16), 2, (2048, 2048)),
    "FlashAttentionScore causal": _attention("BNSD", (4, 8, 32, 16), (4, 8, 32, 16), 2, (2048, 2048)),
    "FlashAttentionScore mask": _attention("BNSD", (4, 8, 32, 16), (4, 8, 32, 16), 0, (32, 32)),
    "FlashAttentionScore batch mask": _attention("BNSD", (4, 8, 32, 16), (4, 8, 32, 16), 1, (4, 1, 32, 32)),
    "FlashAttentionScore TND": _attention("TND", (64, 8, 16), (64, 8, 16), 3, (2048, 2048)),
    # loss
    "SoftmaxCrossEntropyWithLogits": Case("ops.SoftmaxCrossEntropyWithLogits()", "op(p0, p1)", _PAIR),
    "KLDivLoss": Case("ops.KLDivLoss('sum')", "op(p0, p1)", _PAIR),
    "KLDivLoss mean": Case("ops.KLDivLoss('mean')", "op(p0, p1)", _PAIR),
    "CTCLossV2 undivided": Case(
        "ops.CTCLossV2()", "op(p0, p1, p2, p3)", _floats((9, 16, 8)) + _tensors("int32", (16, 4), (16,), (16,)),
        ignores_strategy=True,
    ),
    "NLLLoss": Case("ops.NLLLoss()", "op(p0, p1, p2)", _MATRIX + _tensors("int32", (16,)) + _floats((32,)), True),
    "SmoothL1Loss": Case("ops.SmoothL1Loss(reduction='mean')", "op(p0, p1)", _PAIR, ignores_strategy=True),
    "L1LossExt": Case("gen.L1LossExt()", "op(p0, p1)", _PAIR, ignores_strategy=True),
    "MSELossExt": Case("gen.MSELossExt()", "op(p0, p1)", _PAIR, ignores_strategy=True),
    "BCEWithLogitsLoss": Case("ops.BCEWithLogitsLoss()", "op(p0, p1, p2, p3)", _PAIR + _PAIR, ignores_strategy=True),
    "KLDiv": Case("gen.KLDiv()", "op(p0, p1, 'mean', False)", _PAIR, ignores_strategy=True),
    "SoftMarginLoss": Case("gen.SoftMarginLoss('mean')", "op(p0, p1)", _PAIR, ignores_strategy=True),
    "NLLLoss2d": Case(
        "gen.NLLLoss2d()", "op(p0, p1, p2, 'mean', -100)",
        _floats((16, 8, 4, 4)) + _tensors("int64", (16, 4, 4)) + _floats((8,)), ignores_strategy=True,
    ),
    "BinaryCrossEntropy": Case("ops.BinaryCrossEntropy()", "op(p0, p1, p2)", _PAIR + _MATRIX, ignores_strategy=True),
}  # fmt: skip
