"""Convolutions, pooling and resizing of images: samples and channels may be cut, rows and columns stay whole.

MindSpore also cuts rows and columns, with neighbours' rows exchanged (NeighborExchange): that is not searched.
"""

from ms_symtensor.ops.quirks import NO_QUIRKS, UNDISTRIBUTED, Quirks
from ms_symtensor.ops.rule import Choice, LineRule, alike, rule
from ms_symtensor.ops.signature import Unit

_SAMPLES = Quirks(only="n")


def _of_groups(line: str, grouped: str, mesh: str, number: int, quirks: Quirks) -> Choice:
    """A convolution, and one with several groups of channels, of which samples alone are cut."""
    one, several = (rule(text, quirks, unit=Unit.CUBE, bilinear=True, mesh=mesh) for text in (line, grouped))
    return Choice("group", number, {1: one}, several)


def _convolution(quirks: Quirks = NO_QUIRKS, number: int = -1) -> Choice:
    return _of_groups(
        "@n i 1..., @o i w...!, ?o -> n o y...!",
        "@n 1 1..., @o! i! w...!, ?o! -> n o! y...!",
        "n i o y... w...",
        number,
        quirks,
    )


def _transposed(quirks: Quirks = NO_QUIRKS, number: int = -2) -> Choice:
    """The gradient of a convolution by its input, as a layer."""
    return _of_groups(
        "@n o y...!, @o i w...!, ?i -> n i 1...",
        "@n o! y...!, @o! i! w...!, ?1 -> n 1 1...",
        "n o i y... w...",
        number,
        quirks,
    )


def _either(quirks: Quirks) -> Choice:
    return Choice("transposed", -3, {True: _transposed(quirks, -1)}, _convolution(quirks))


def _window(line: str, quirks: Quirks = UNDISTRIBUTED) -> LineRule:
    return rule(line.replace("image", "n c 1..."), quirks)


_PLAIN, _INPUT, _INDEX = "image -> *image", "@image -> *image", "@image -> image, @image"
_BOTH = "@image -> @image, *image"
_PATCHES = "n c% 1... -> n c% 1..."

RULES = {
    **alike("Conv2D Conv3D", _convolution()),
    **alike("Conv1DExt Conv2DExt Conv3DExt", _convolution(UNDISTRIBUTED)),
    "Convolution": _either(_SAMPLES),
    "ConvolutionStr": _either(UNDISTRIBUTED),
    **alike("Conv2DTranspose Conv2DBackpropInput", _transposed()),
    **alike("ConvTranspose2D Conv3DTranspose", _transposed(UNDISTRIBUTED)),
    # pooling: the gradient of a maximum reads where it was
    **alike("MaxPool AvgPool", _window(_BOTH, NO_QUIRKS)),
    "AvgPool3D": _window(_PLAIN, NO_QUIRKS),
    "MaxPool3D": _window(_BOTH, _SAMPLES),
    **alike(
        "AdaptiveMaxPool1D AdaptiveMaxPool2D MaxPoolWithIndices MaxPoolWithMask MaxPoolWithArgmaxV2 MaxPool3DWithArgmax",
        _window(_INDEX),
    ),
    **alike("AdaptiveAvgPool2D AdaptiveAvgPool3D", _window(_PLAIN)),
    **alike(
        "AvgPool1D AvgPool2D AvgPool3DExt AdaptiveAvgPool1D AdaptiveAvgPool2DExt AdaptiveAvgPool3DExt", _window(_INPUT)
    ),
    "LRN": _window(_BOTH),
    # resizing
    "ResizeBilinearV2": _window(_INPUT, NO_QUIRKS),
    "ResizeBicubic": _window(_INPUT),
    "ResizeNearestNeighbor": _window(_PLAIN, NO_QUIRKS),
    **alike(
        "ResizeNearestNeighborV2 ResizeLinear1D UpsampleLinear1D UpsampleNearest1D UpsampleNearest3D"
        " UpsampleTrilinear3D UpsampleNearest2D UpsampleBilinear2D UpsampleBicubic2D",
        _window(_PLAIN),
    ),
    # windows side by side, and channels and places that change into each other
    **alike("Im2Col Col2ImExt", rule(_PATCHES, UNDISTRIBUTED)),
    **alike("Im2ColExt SpaceToDepth DepthToSpace", rule("n 1... -> n 1...", UNDISTRIBUTED)),
    "Col2Im": rule("n c 1..., ~1 -> n c 1...", UNDISTRIBUTED),
    "GridSampler2D": rule("@n c 1..., @n p... 1 -> n c p...", _SAMPLES),
}  # fmt: skip
