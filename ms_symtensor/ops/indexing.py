"""Look-ups by index, and their inverse, one-hot vectors."""

from ms_symtensor.ops.quirks import UNDISTRIBUTED, Quirks, embedded, gathered, looked_up, one_hot
from ms_symtensor.ops.rule import alike, rule
from ms_symtensor.ops.signature import OpView

_SCATTERED = Quirks(instead="write the sum of one-hot vectors of the indices times what is put in")
_INDEX = "MindSpore partitions no tensor indexed by tensors with Index: use ops.gather, or ops.gather_nd"
_LOOK_UP = "b... t... v t..., @~b... i... -> + b... t... i... t... | b... = batch_dims 1 0, v = axis 0 0"
_SPARSE = (
    "MindSpore gathers the gradients of a sparse look-up, which is not planned: use nn.Embedding for nn.EmbeddingLookup"
)
_PADDED = "MindSpore partitions no Embedding with padding_idx: use nn.Embedding for that of mint"
_ONE_HOT = "~i..., ~, ~ -> i... depth i... | depth = axis 1 -1"
_ALONG = "@... a! ..., @~...% 1 ...%, ?@...% 1 ...% -> {}... a! ... | a = axis 0 0"
_AT_PLACES = "... a! ..., @~1..., 1... ... ... -> ... a! ... | a = places 1"
_ADDED = "... a! ..., @~1, ... 1 ... -> {}... a! ... | a = dim 0 0"
_FILLED = "... a! ..., @~1 -> {}... a! ... | a = dim 0 0"


def _has_padding(op: OpView) -> bool:
    return op.argument(0, "padding_idx") is not None


RULES = {
    # a cut of the looked-up dim leaves partial sums: every device looks up what it holds and zero elsewhere
    "Gather": rule(_LOOK_UP, Quirks(adjust=gathered), mesh="b... i... t..."),
    "SparseGatherV2": rule(_LOOK_UP, Quirks(adjust=gathered, refused=_SPARSE), mesh="b... i... t..."),
    "GatherD": rule("@... a ..., @~...% 1 ...% -> + ...% 1 ...% | a = dim 0 0", Quirks(adjust=looked_up)),
    "IndexSelect": rule("t... a! t..., @~i -> t... i t... | a = axis 0 0", Quirks(leading="i"), mesh="i t..."),
    "OneHot": rule(_ONE_HOT, Quirks(lists_output=True, adjust=one_hot)),
    "OneHotExt": rule(_ONE_HOT, Quirks(lists_output=True, adjust=one_hot)),
    "Embedding": rule(
        "@~i...!, vocabulary width -> + i... width",
        Quirks(leading="vocabulary", adjust=embedded, refused=_PADDED, refused_where=_has_padding), scatter="i...",
    ),
    "GatherNd": rule("1..., @~i... 1 -> i... 1...", Quirks(leading="i...")),
    "UnsortedSegmentSum": rule("e... w..., @~e... -> + 1 w..."),
    "Index": rule("1..., @~1..., *~1... -> 1...", Quirks(refused=_INDEX)),
    "IndexAddExt": rule(_ADDED.format(""), Quirks(needs_strategy=True)),
    "IndexFillScalar": rule(_FILLED.format(""), UNDISTRIBUTED),
    "InplaceIndexFillScalar": rule(_FILLED.format("="), UNDISTRIBUTED),
    **alike("InplaceIndexAddExt InplaceIndexCopy", rule(_ADDED.format("="), UNDISTRIBUTED)),
    **alike("TensorScatterElements Scatter ScatterAddExt ScatterValue", rule(_ALONG.format(""), _SCATTERED)),
    **alike("InplaceScatterSrc InplaceScatterAdd InplaceScatterValue", rule(_ALONG.format("="), _SCATTERED)),
    **alike("TensorScatterUpdate TensorScatterAdd TensorScatterSub", rule(_AT_PLACES)),
    **alike(
        "TensorScatterMul TensorScatterDiv TensorScatterMax TensorScatterMin",
        rule("@" + _AT_PLACES.replace("1... ...", "@1... ...")),
    ),
}  # fmt: skip
