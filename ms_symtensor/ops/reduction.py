"""Reductions of dims, where a cut leaves partial results, and what runs along an axis that stays whole."""

from dataclasses import replace

from ms_symtensor.ops.quirks import UNDISTRIBUTED, Quirks
from ms_symtensor.ops.rule import alike, rule

# Of equal largest elements on several devices each receives the whole gradient there.
_SHARED = Quirks(gradient_miscompiled="a")
_ALONE = replace(_SHARED, instead=UNDISTRIBUTED.instead)
# Values are combined, the index is the local one.
_LOCAL_INDEX = Quirks(miscompiled="a", gradient_miscompiled="a")
_FIRST = Quirks(rejects_whole_first="a")
_ALL = "... a ... -> *{} ... 1? ... | a = axis 0"
_READ = "@... a ... -> @{} ... 1? ..., *... 1? ... | a = axis 0"
_ONE = "... a! ... -> ... 1? ..., @... 1? ... | a = axis 0 -1"
_SORTED = "... a! ... -> ... a! ..., @... a! ... | a = axis 0 -1"
_WHOLE = "... a! ... -> ... a! ... | a = axis 0 0"
_FREQUENCIES = "... a! ... -> ... 1 ... | a = dim 1"

RULES = {
    **alike("ReduceSum SumExt", rule(_ALL.format("+"))),
    **alike("ReduceMean MeanExt", rule(_ALL.format("mean"))),
    **alike("ReduceMax Max", rule(_READ.format("max"), _SHARED)),
    "ReduceMin": rule(_READ.format("min"), _SHARED),
    "ReduceProd": rule(_READ.format("prod")),
    "L2Loss": rule("@... a ... -> + ... ... | a = axis 0"),
    **alike("ReduceAny Any", rule("~" + _ALL.format("+"), partial_dtype="int32")),
    "ReduceAll": rule("~" + _ALL.format("prod"), partial_dtype="int32"),
    "ArgMaxWithValue": rule("... a ... -> @... 1? ..., max ... 1? ... | a = axis 0 0", _LOCAL_INDEX),
    "ArgMinWithValue": rule("... a ... -> @... 1? ..., min ... 1? ... | a = axis 0 0", _LOCAL_INDEX),
    "Min": rule(_READ.format("min"), _ALONE),
    **alike("ArgMaxExt ArgMinExt", rule("~" + _ALL.format("max"), _ALONE)),
    **alike("ProdExt LogSumExp LpNorm Var Std VarMean StdMean ReduceStd", rule(_READ.format("+"), UNDISTRIBUTED)),
    **alike("LinalgVectorNorm Norm", rule("@... a ... -> @+ ... 1? ... | a = axis 1", UNDISTRIBUTED)),
    **alike("CountNonZero Nansum", rule("@" + _ALL.format("+"), UNDISTRIBUTED)),
    # an axis that stays whole
    "TopK": rule("... a! ... -> ... 1 ..., @... 1 ... | a = -1"),
    "TopkExt": rule("... a! ... -> ... 1 ..., @... 1 ... | a = dim 1 -1"),
    **alike("CumSum CumsumExt", rule(_WHOLE)),
    "CumProd": rule("@... a! ... -> @... a! ... | a = axis 0 0"),
    "MaxDim": rule(_ONE, _FIRST),
    "MinDim": rule(_ONE, UNDISTRIBUTED),
    **alike("Argmax Argmin", rule("~... a! ... -> ... 1? ... | a = axis 0 -1", _FIRST)),
    **alike("Sort SortExt Cummax Cummin", rule(_SORTED, _FIRST)),
    "CumminExt": rule(_SORTED, UNDISTRIBUTED),
    "ArgSort": rule("~... a! ... -> ... a! ... | a = axis 0 -1", UNDISTRIBUTED),
    "Kthvalue": rule(_ONE.replace("axis 0", "axis 1"), UNDISTRIBUTED),
    **alike("MedianDim Median", rule(_ONE, UNDISTRIBUTED)),
    **alike("FFT IFFT RFFT IRFFT", rule(f"{_FREQUENCIES} -1")),
    **alike("FFT2 IFFT2 RFFT2 IRFFT2", rule(f"{_FREQUENCIES} -2 -1")),
    **alike("FFTN IFFTN RFFTN IRFFTN", rule(_FREQUENCIES)),
}
