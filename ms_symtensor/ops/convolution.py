"""Convolutions, pooling and resizing of images: samples and channels may be cut, rows and columns stay whole.

MindSpore also cuts rows and columns, with neighbours' rows exchanged (NeighborExchange): that is not searched.
"""

from collections.abc import Callable
from dataclasses import replace

from ms_symtensor.ops.batch_only import batch_only
from ms_symtensor.ops.signature import Dims, OpView, Signature, Unit, named


def _places(rank: int, prefix: str = "y") -> tuple[str, ...]:
    """Names for the spatial dims of a tensor with `rank` dims."""
    return tuple(f"{prefix}{i}" for i in range(rank - 2))


def convolution(op: OpView) -> Signature:
    """`n i …, o i kernel… -> n o y…`, work over all of them; a cut of the input channels leaves partial sums.

    With several groups of channels only samples are cut.
    """
    rank = len(op.inputs[0].shape)
    groups = op.arguments[-1] if op.arguments else op.attributes.get("group", 1)
    across: Dims = (None,) * (rank - 2)
    kernel, places = _places(rank, "w"), _places(rank)
    inputs: list[Dims] = [("n", "i" if groups == 1 else None, *across), ("o", "i", *kernel), ("o",)]
    return named(
        op, inputs[: len(op.inputs)], [("n", "o", *places)], mesh=("n", "i", "o", *places, *kernel), unit=Unit.CUBE,
        fixed=frozenset((*places, *kernel, *(() if groups == 1 else ("i", "o")))), keeps_inputs=(0, 1), bilinear=True,
    )  # fmt: skip


def transposed_convolution(op: OpView) -> Signature:
    """`n o y…, o i kernel… -> n i …`: the gradient of a convolution by its input, as a layer; a cut of its input's channels
    leaves partial sums.

    With several groups of channels only samples are cut.
    """
    rank = len(op.inputs[0].shape)
    groups = op.attributes["group"] if "group" in op.attributes else op.arguments[-2]
    across: Dims = (None,) * (rank - 2)
    kernel, places = _places(rank, "w"), _places(rank)
    made = "i" if groups == 1 else None
    inputs: list[Dims] = [("n", "o", *places), ("o", "i", *kernel), (made,)]
    return named(
        op, inputs[: len(op.inputs)], [("n", made, *across)], mesh=("n", "o", "i", *places, *kernel), unit=Unit.CUBE,
        fixed=frozenset((*places, *kernel, *(() if groups == 1 else ("i", "o")))), keeps_inputs=(0, 1), bilinear=True,
    )  # fmt: skip


def window(keeps_inputs: tuple[int, ...] = (), keeps_outputs: tuple[int, ...] = ()) -> Callable[[OpView], Signature]:
    """`n c … -> n c …`: pooling and resizing of every sample and channel by itself."""

    def rule(op: OpView) -> Signature:
        rank = len(op.inputs[0].shape)
        across: Dims = (None,) * (rank - 2)
        return named(
            op, [("n", "c", *across)], [("n", "c", *across)] * len(op.outputs), mesh=("n", "c"),
            keeps_inputs=keeps_inputs, keeps_outputs=keeps_outputs,
        )  # fmt: skip

    return rule


def convolution_of_any_kind(op: OpView) -> Signature:
    """As `convolution`, or transposed, as an argument says; MindSpore cuts the samples of one that is given no strategy by as
    many devices as divide them, and takes strategies for samples alone.
    """
    arguments = op.arguments if op.arguments and op.arguments[0] is not None else op.arguments[1:]
    *_, transposed, _, groups = arguments
    turned = transposed_convolution if transposed else convolution
    return turned(replace(op, arguments=(), attributes={"group": groups}))


def samples_alone(rule: Callable[[OpView], Signature]) -> Callable[[OpView], Signature]:
    """What `rule` says, with samples alone to cut."""

    def only(op: OpView) -> Signature:
        found = rule(op)
        return replace(found, fixed=frozenset(found.sizes) - {"n"})

    return only


def sampled(op: OpView) -> Signature:
    """`n c …, n places… 2 -> n c places…`: every sample and channel at places of its own."""
    places = tuple(f"p{i}" for i in range(len(op.outputs[0].shape) - 2))
    across: Dims = (None,) * (len(op.inputs[0].shape) - 2)
    return named(
        op,
        [("n", "c", *across), ("n", *places, None)],
        [("n", "c", *places)],
        mesh=("n", "c", *places),
        keeps_inputs=(0, 1),
    )


def patches(op: OpView) -> Signature:
    """`n c … -> n c kernel places`: the windows of an image side by side (Im2Col)."""
    across: Dims = (None,) * (len(op.outputs[0].shape) - 2)
    channels = "c" if len(across) == 2 else None  # Im2ColExt has channels and kernel in one dim
    source: Dims = (None,) * (len(op.inputs[0].shape) - 2)
    return named(op, [("n", channels, *source)], [("n", channels, *across)], mesh=("n", "c"))


def moved_places(op: OpView) -> Signature:
    """`n … -> n …`: channels and places change into each other (SpaceToDepth)."""
    return named(op, [("n", None, None, None)], [("n", None, None, None)], mesh=("n",))


RULES = {
    **dict.fromkeys(("Conv2D", "Conv3D"), convolution),
    **dict.fromkeys(
        ("Conv1DExt", "Conv2DExt", "Conv3DExt"),
        batch_only(convolution),
    ),
    "Convolution": samples_alone(convolution_of_any_kind),
    "ConvolutionStr": batch_only(convolution_of_any_kind),
    "Conv2DTranspose": transposed_convolution,
    "ConvTranspose2D": batch_only(transposed_convolution),
    # pooling: the gradient of a maximum reads where it was
    "MaxPool": window((0,), (0,)),
    "MaxPoolWithMask": batch_only(window((0,), (1,))),
    "AvgPool": window((0,), (0,)),
    "AvgPool2D": batch_only(window((0,))),
    "AvgPool3D": window(),
    "MaxPool3D": samples_alone(window((0,), (0,))),
    **dict.fromkeys(
        ("AdaptiveAvgPool1D", "AdaptiveAvgPool2D", "AdaptiveAvgPool2DExt", "AdaptiveAvgPool3D", "AdaptiveAvgPool3DExt"),
        batch_only(window()),
    ),
    **dict.fromkeys(("AvgPool1D", "AvgPool3DExt"), batch_only(window((0,)))),
    **dict.fromkeys(("AdaptiveMaxPool1D", "AdaptiveMaxPool2D", "MaxPoolWithIndices"), batch_only(window((0,), (1,)))),
    "LRN": batch_only(window((0,), (0,))),
    # resizing
    "ResizeBilinearV2": window((0,)),
    "ResizeNearestNeighbor": window(),
    **dict.fromkeys(
        (
            "ResizeNearestNeighborV2",
            "ResizeBicubic",
            "ResizeLinear1D",
            "UpsampleLinear1D",
            "UpsampleNearest1D",
            "UpsampleNearest3D",
            "UpsampleTrilinear3D",
            "UpsampleNearest2D",
            "UpsampleBilinear2D",
            "UpsampleBicubic2D",
        ),
        batch_only(window()),
    ),
    **dict.fromkeys(("Im2Col", "Im2ColExt", "Col2ImExt"), batch_only(patches)),
    **dict.fromkeys(("SpaceToDepth", "DepthToSpace"), batch_only(moved_places)),
    "GridSampler2D": samples_alone(sampled),
}
