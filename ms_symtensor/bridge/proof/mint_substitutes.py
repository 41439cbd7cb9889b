"""Operators of `mint` that MindSpore's CPU lacks, and what stands for each."""

from collections.abc import Callable, Mapping
from typing import Any

from ms_symtensor.bridge.proof.definition import Definition, Function, GroupOf, Operand, Substitute
from ms_symtensor.bridge.proof.linear_maps import adaptive_mean, interpolation, pair, window_mean
from ms_symtensor.bridge.proof.splice import Call
from ms_symtensor.errors import ExecutionError

_SIGMOID = "plain operators with Sigmoid"
_PLAIN = "plain operators"

_FUNCTIONS: Mapping[str, str] = {
    "AcosExt": "ACos",
    "AcoshExt": "Acosh",
    "AsinExt": "Asin",
    "AsinhExt": "Asinh",
    "AtanExt": "Atan",
    "Atan2Ext": "Atan2",
    "Exp2": "Exp",
    "Log2": "Log",
    "Log10": "Log",
    **dict.fromkeys(("LogAddExp", "LogAddExp2"), "log of a sum of exponentials"),
    "Frac": "x - Trunc(x)",
    "FmodTensor": "x - Trunc(x / y) y",
    "FmodScalar": "x - Trunc(x / y) y",
    "FloorDivScalar": "Floor(x / y)",
    "Clone": "a copy",
    **dict.fromkeys(("EluExt", "EluGradExt", "SeLUExt", "SeluGrad"), "Select and Exp"),
    **dict.fromkeys(("LeakyReLUExt", "LeakyReLUGradExt", "Threshold", "ThresholdGrad", "HardtanhGrad"), "Select"),
    **dict.fromkeys(("Hardtanh", "ClampMin", "InplaceClampScalar"), "Maximum and Minimum"),
    "InplaceExp": "Exp",
    "InplaceSigmoid": "Sigmoid",
    **dict.fromkeys(("InplaceZero", "InplaceFillScalar"), "zeros plus the number"),
    **dict.fromkeys(("LogSigmoid", "SoftplusExt"), "log of a sum of exponentials"),
    **dict.fromkeys(("LogSigmoidGrad", "SoftplusGradExt", "Swiglu", "SwigluGrad"), _SIGMOID),
    **dict.fromkeys(("MishExt", "MishGradExt"), "plain operators with Tanh"),
    **dict.fromkeys(("Mm", "Addmm", "Addbmm", "Baddbmm"), "MatMul"),
    **dict.fromkeys(("Mv", "Dot", "Outer", "Addmv"), "Mul and ReduceSum"),
    **dict.fromkeys(("AddcmulExt", "AddcdivExt"), _PLAIN),
    "TExt": "Transpose",
    "Chunk": "Gather",
    "StackExt": "Stack",
    "Repeat": "Tile",
    "IndexSelect": "Gather",
    **dict.fromkeys(("IndexAddExt", "InplaceIndexAddExt"), "UnsortedSegmentSum"),
    "ExpandAs": "BroadcastTo",
    **dict.fromkeys(("ScatterAddExt", "InplaceScatterAdd"), "sums of one-hot vectors"),
    "CumminExt": "Cummin",
    "TrilExt": "Select",
    **dict.fromkeys(("Var", "Std", "VarMean", "StdMean", "LinalgVectorNorm"), "ReduceSum"),
    "ArgMinExt": "Argmin",
    **dict.fromkeys(("MSELossExt", "MSELossGradExt", "L1LossExt", "L1LossBackwardExt", "KLDiv", "KLDivGrad"), _PLAIN),
    **dict.fromkeys(("LayerNormExt", "LayerNormGradExt"), _PLAIN),
}
"""By operator: what its function in `mint_functions` consists of."""


def applied(call: Call, _: GroupOf) -> Definition:
    """The function in `mint_functions` of the operator's name."""
    operands: list[Operand] = []
    pattern: list[tuple[bool, Any]] = []
    for i in range(len(call.operands)):
        if number := call.tuple_length(i):
            operands += [(i, j) for j in range(number)]
            pattern += [(True, None)] * number
        elif call.is_tensor(i):
            operands.append(i)
            pattern.append((True, None))
        else:
            pattern.append((False, call.constant(i)))
    return Definition(tuple(operands), (Function("Applied", (call.type, tuple(pattern))),))


def _convolution(options: Callable[[Call, int], tuple[Any, ...]]) -> Callable[[Call, GroupOf], Definition]:
    def define(call: Call, _: GroupOf) -> Definition:
        operands = (0, 1, 2) if call.is_tensor(2) else (0, 1)
        return Definition(operands, (Function("Convolution", options(call, 3)),))

    return define


def _convolution_gradient(call: Call, _: GroupOf) -> Definition:
    forward = Function("Convolution", _any_options(call, 4))
    return Definition((0, 1, 2), (Function("ConvolutionGradient", inner=forward),))


def _plain_options(call: Call, first: int) -> tuple[Any, ...]:
    stride, padding, dilation = (_sizes(call, first + i) for i in range(3))
    return stride, padding, dilation, call.constant(first + 3), False, (0,) * len(stride)


def _any_options(call: Call, first: int) -> tuple[Any, ...]:
    stride, padding, dilation, added = (_sizes(call, first + i) for i in (0, 1, 2, 4))
    return stride, padding, dilation, call.constant(first + 5), bool(call.constant(first + 3)), added


def _transposed_options(call: Call, first: int) -> tuple[Any, ...]:
    stride, padding, added, dilation = (_sizes(call, first + i) for i in (0, 1, 2, 4))
    return stride, padding, dilation, call.constant(first + 3), True, added


def _sizes(call: Call, position: int) -> tuple[Any, ...]:
    """One number for each dim of an image."""
    value = call.constant(position)
    numbers = value if isinstance(value, tuple) else (value,)
    dims = len(call.tensor(0).shape) - 2
    return numbers if len(numbers) == dims else (*numbers,) * dims


def _mean(call: Call, _: GroupOf) -> Definition:
    sizes = zip(call.tensor(0).shape[-2:], call.outputs[0].shape[-2:], strict=True)
    return _map(call, [adaptive_mean(h, a) for h, a in sizes])


def _mean_gradient(call: Call, _: GroupOf) -> Definition:
    sizes = zip(call.tensor(1).shape[-2:], call.tensor(0).shape[-2:], strict=True)
    return _map(call, [adaptive_mean(h, a).T for h, a in sizes])


def _mean_of_row(call: Call, _: GroupOf) -> Definition:
    size, wanted = call.tensor(0).shape[-1], call.outputs[0].shape[-1]
    rows = call.tensor(0).shape[-2]
    return _map(call, [adaptive_mean(rows, rows), adaptive_mean(size, wanted)])


def _window_means(call: Call, image: tuple[int, ...], pooled: tuple[int, ...], first: int) -> list[Any]:
    kernel, stride, padding = (pair(call.constant(first + i)) for i in range(3))
    stride = kernel if call.constant(first + 1) in (None, ()) else stride
    if call.constant(first + 5) is not None:
        raise ExecutionError(f"{call.name} ({call.type}) with a divisor of its own has no definition")
    sizes = zip(image[-2:], pooled[-2:], kernel, stride, padding, strict=True)
    return [window_mean(*size, bool(call.constant(first + 4))) for size in sizes]


def _window_mean(call: Call, _: GroupOf) -> Definition:
    return _map(call, _window_means(call, call.tensor(0).shape, call.outputs[0].shape, 1))


def _window_mean_gradient(call: Call, _: GroupOf) -> Definition:
    return _map(call, [m.T for m in _window_means(call, call.tensor(1).shape, call.tensor(0).shape, 2)])


def _interpolated(call: Call, _: GroupOf) -> Definition:
    return _map(call, _interpolations(call, call.tensor(0).shape, call.outputs[0].shape, 2))


def _interpolated_gradient(call: Call, _: GroupOf) -> Definition:
    return _map(call, [m.T for m in _interpolations(call, call.outputs[0].shape, call.tensor(0).shape, 3)])


def _interpolations(call: Call, image: tuple[int, ...], wanted: tuple[int, ...], first: int) -> list[Any]:
    given: Any = call.constant(first)
    scales = given if isinstance(given, tuple) and len(given) == 2 else (None, None)
    sizes = zip(image[-2:], wanted[-2:], scales, strict=True)
    return [interpolation(h, a, bool(call.constant(first + 1)), scale) for h, a, scale in sizes]


def _map(call: Call, matrices: list[Any]) -> Definition:
    """The first operand, whose last two dims these matrices turn into others."""
    rows, columns = (tuple(map(tuple, matrix.tolist())) for matrix in matrices)
    return Definition((0,), (Function("LinearMap", (rows, columns)),))


def _max_pool(call: Call, _: GroupOf) -> Definition:
    mask = call.outputs[1]
    return Definition((0,), (Function("MaxPoolWithPlaces", (mask.shape, mask.dtype), _pool(call, 1)),))


def _max_pool_gradient(call: Call, _: GroupOf) -> Definition:
    return Definition((0, 1), (Function("MaxPoolGradient", inner=_pool(call, 3)),))


def _pool(call: Call, first: int) -> Function:
    size, stride, padding, dilation = (call.constant(first + i) for i in range(4))
    if pair(dilation) != (1, 1) or call.constant(first + 4):
        raise ExecutionError(f"{call.name} ({call.type}) with dilation or ceil_mode has no definition")
    return Function("MaxPool", (pair(size), pair(size if stride in (None, ()) else stride), pair(padding)))


MINT: Mapping[str, Substitute] = {
    **{kind: Substitute(words, applied) for kind, words in _FUNCTIONS.items()},
    **dict.fromkeys(
        ("Conv1DExt", "Conv2DExt", "Conv3DExt"), Substitute("Conv2D or Conv3D", _convolution(_plain_options))
    ),
    "Convolution": Substitute("Conv2D or Conv3D", _convolution(_any_options)),
    "ConvTranspose2D": Substitute("Conv2DTranspose", _convolution(_transposed_options)),
    "ConvolutionGrad": Substitute("the derivative of Conv2D or Conv3D", _convolution_gradient),
    "AdaptiveAvgPool2DExt": Substitute("MatMul", _mean),
    "AdaptiveAvgPool2DGradExt": Substitute("MatMul", _mean_gradient),
    "AdaptiveAvgPool1D": Substitute("MatMul", _mean_of_row),
    "AvgPool2D": Substitute("MatMul", _window_mean),
    "AvgPool2DGrad": Substitute("MatMul", _window_mean_gradient),
    "UpsampleBilinear2D": Substitute("MatMul", _interpolated),
    "UpsampleBilinear2DGrad": Substitute("MatMul", _interpolated_gradient),
    "MaxPoolWithMask": Substitute("MaxPool", _max_pool),
    "MaxPoolGradWithMask": Substitute("the derivative of MaxPool", _max_pool_gradient),
}
