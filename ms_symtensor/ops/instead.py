"""What to write in place of operators that MindSpore cuts along one dim only, or not at all."""

from collections.abc import Mapping

INSTEAD: Mapping[str, tuple[str, str]] = {
    # products
    "Dense": ("MatMul", "nn.Dense for mint.nn.Linear, or ops.MatMul for a function"),
    "Mm": ("MatMul", "ops.MatMul"),
    **dict.fromkeys(("MatMulExt", "BatchMatMulExt"), ("BatchMatMul", "ops.BatchMatMul, or ops.MatMul for matrices")),
    "Einsum": ("BatchMatMul", "ops.BatchMatMul, ops.MatMul and ops.Transpose"),
    "Conv1DExt": ("Conv2D", "nn.Conv1d"),
    "Conv2DExt": ("Conv2D", "nn.Conv2d"),
    "Conv3DExt": ("Conv3D", "nn.Conv3d"),
    "ConvTranspose2D": ("Conv2DTranspose", "nn.Conv2dTranspose"),
    "Addcmul": ("Mul", "x + value * a * b, of ops.Mul and ops.Add"),
    **dict.fromkeys(("Addcdiv", "AddcdivExt"), ("RealDiv", "x + value * a / b, of ops.RealDiv and ops.Add")),
    # views
    **dict.fromkeys(("TransposeView", "TransposeExtView", "TExt"), ("Transpose", "ops.Transpose")),
    "ExpandDimsView": ("ExpandDims", "ops.ExpandDims"),
    **dict.fromkeys(("Flatten", "FlattenExt"), ("Reshape", "ops.Reshape")),
    **dict.fromkeys(("SplitTensorView", "ChunkView", "Unstack", "UnstackExtView"), ("Split", "ops.Split")),
    **dict.fromkeys(("SelectExtView", "NarrowView", "SliceExtView"), ("StridedSlice", "ops.StridedSlice")),
    # element by element
    "AddExt": ("Add", "ops.Add"),
    "SubExt": ("Sub", "ops.Sub"),
    "Muls": ("Mul", "ops.Mul"),
    "AddScalar": ("Add", "ops.Add"),
    "SubScalar": ("Sub", "ops.Sub"),
    "Divs": ("RealDiv", "ops.RealDiv"),
    "FloorDivScalar": ("FloorDiv", "ops.FloorDiv"),
    "PowTensorScalar": ("Pow", "ops.Pow"),
    "EqScalar": ("Equal", "ops.Equal"),
    "LessScalar": ("Less", "ops.Less"),
    "GreaterEqualScalar": ("GreaterEqual", "ops.GreaterEqual"),
    "SelectV2": ("Select", "ops.Select"),
    "MaskedFillScalar": ("MaskedFill", "ops.MaskedFill"),
    "ClampTensor": ("Minimum", "ops.Minimum and ops.Maximum"),
    "OnesLikeExt": ("OnesLike", "ops.OnesLike"),
    "ZerosLikeExt": ("ZerosLike", "ops.ZerosLike"),
    "Atan2Ext": ("Atan2", "ops.Atan2, or ops.atan2 for the function of mint"),
    "LogAddExp": ("Exp", "m + ops.log(ops.exp(x - m) + ops.exp(y - m)) with m = ops.maximum(x, y)"),
    "TrilExt": ("Tril", "ops.Tril"),
    "MishExt": ("Mish", "ops.Mish"),
    "SeLUExt": ("SeLU", "ops.SeLU"),
    # along a dim
    "SumExt": ("ReduceSum", "ops.ReduceSum"),
    "MeanExt": ("ReduceMean", "ops.ReduceMean"),
    "Max": ("ReduceMax", "ops.ReduceMax"),
    "MaxDim": ("ArgMaxWithValue", "ops.ArgMaxWithValue"),
    "SortExt": ("Sort", "ops.Sort"),
    "LogSoftmaxExt": ("LogSoftmax", "ops.LogSoftmax"),
    "Roll": ("Concat", "ops.roll for nn.Roll, or ops.Concat of two slices"),
    "Min": ("ReduceMin", "ops.ReduceMin"),
    "MinDim": ("ArgMinWithValue", "ops.ArgMinWithValue"),
    "ArgMaxExt": ("Argmax", "ops.Argmax"),
    "ArgMinExt": ("Argmin", "ops.Argmin"),
    "ProdExt": ("ReduceProd", "ops.ReduceProd"),
    "MaxPoolWithMask": ("MaxPool", "nn.MaxPool2d"),
    "AvgPool2D": ("AvgPool", "nn.AvgPool2d"),
}
"""By MindSpore's primitive name: an operator that has a distributed form, and what of `mindspore` makes it."""


def why_undistributed(op_type: str) -> str:
    """Why an operator of which MindSpore has no distributed form is cut in one way only, and what to write instead."""
    _, written = INSTEAD.get(op_type, ("", "other operators, which have one"))
    return (
        f"MindSpore has no distributed form of {op_type} and cuts its first dim by all devices, or nothing where these do not"
        f" divide it: write {written}"
    )


def why_on_the_fly(op_type: str) -> str:
    """Why a functional operator is cut in one way only, and what to write instead."""
    _, written = INSTEAD.get(op_type, ("", f"ops.{op_type}"))
    return (
        f"a functional {op_type} has its leading dim cut by MindSpore, and nothing else: make it a primitive of its cell, of"
        f" {written}"
    )
