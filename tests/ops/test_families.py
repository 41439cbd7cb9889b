"""What each family of operators lets be cut, at typical shapes."""

import math
from dataclasses import replace

import pytest

from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy, place
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Combine, Unit
from tests.ops.views import make


@pytest.mark.parametrize(
    ("op", "cuttable"),
    [
        (make("BatchMatMul", "float16[4, 8, 16, 32], float16[4, 8, 32, 16] -> float16[4, 8, 16, 16]", False, False),
         ("b0", "b1", "m", "k", "n")),
        (make("Add", "float16[4, 1, 8], float16[6, 8] -> float16[4, 6, 8]"), ("d0", "d1", "d2")),
        (make("Tril", "float32[4, 8, 8] -> float32[4, 8, 8]", diagonal=0), ("d0",)),
        (make("Softmax", "float16[4, 8] -> float16[4, 8]", (-1,)), ("d0",)),
        (make("LayerNorm", "float32[4, 8], float32[8], float32[8] -> float32[4, 8], float32[4, 1], float32[4, 1]", -1, -1, 1e-5),
         ("d0",)),
        (make("ReduceSum", "float16[4, 8] -> float16[4]", (-1,), False, False), ("d0", "d1")),
        (make("Transpose", "float16[4, 8] -> float16[8, 4]", (1, 0)), ("d0", "d1")),
        (make("StridedSlice", "float16[4, 8] -> float16[4, 2]", (0, 0), (4, 2), (1, 1), 0, 0, 0, 0, 0), ("d0",)),
        (make("StridedSlice", "float16[4, 8] -> float16[4]", (0, 3), (4, 4), (1, 1), 0, 0, 0, 0, 2), ("d0",)),
        (make("StridedSlice", "float16[4, 8] -> float16[4, 4]", (0, 0), (4, 8), (1, 2), 0, 0, 0, 0, 0), ("d0",)),
        (make("Concat", "float16[4, 8], float16[4, 8] -> float16[4, 16]", -1), ("d0",)),
        (make("Split", "float16[4, 8] -> float16[4, 4], float16[4, 4]", 1, 2), ("d0",)),
        (make("Stack", "float16[4, 8], float16[4, 8] -> float16[4, 2, 8]", axis=1, num=2), ("d0", "d1")),
        (make("Tile", "float16[4, 1] -> float16[8, 6]", (2, 6)), ("copies0", "copies1")),
        (make("Squeeze", "float16[4, 1, 8] -> float16[4, 8]", (1,)), ("d0", "d2")),
        (make("BroadcastTo", "float16[8, 1] -> float16[2, 8, 4]", (2, 8, 4)), ("d0",)),
        (make("GatherD", "float16[4, 8], int32[4, 2] -> float16[4, 2]", 1), ("d0", "d1")),
        (make("TopK", "float16[4, 8] -> float16[4, 2], int32[4, 2]", 2), ("d0",)),
        (make("GatherNd", "float32[16, 8], int32[4, 6, 1] -> float32[4, 6, 8]"), ("i0", "i1")),
        (make("Cdist", "float32[4, 6, 8], float32[4, 2, 8] -> float32[4, 6, 2]", p=2.0), ("b0", "m", "n")),
        (make("Conv2DBackpropInput", "float32[4, 8, 6, 6], float32[8, 6, 3, 3] -> float32[4, 6, 6, 6]", group=1),
         ("n", "o", "i")),
        (make("FillV2", "int64[2], float32[] -> float32[4, 8]"), ("d0", "d1")),
        (make("LinSpace", "float32[], float32[] -> float32[8]", 8), ("d0",)),
        (make("MirrorPad", "float32[4, 8], int64[2, 2] -> float32[4, 10]", mode="REFLECT"), ("d0",)),
        (make("UnsortedSegmentSum", "float32[4, 6, 8], int32[4, 6] -> float32[5, 8]", 5), ("e0", "e1", "w0")),
        (make("TensorScatterAdd", "float32[16, 8], int32[4, 1], float32[4, 8] -> float32[16, 8]"), ("d1",)),
        (make("RotaryPositionEmbedding", "float16[4, 2, 8, 16], float16[1, 1, 8, 16], float16[1, 1, 8, 16]"
              " -> float16[4, 2, 8, 16]", 0), ("d0", "d1", "d2")),
        (make("IndexAddExt", "float32[16, 8], int32[4], float32[16, 4] -> float32[16, 8]", 1, 1), ("d0",)),
        (make("PadV3", "float32[4, 8], float32[] -> float32[4, 10]", (1, 1), "constant", True), ("d0",)),
        (make("FFT2", "float32[4, 8, 8] -> complex64[4, 8, 8]", None, (-2, -1), None), ("d0",)),
        (make("SparseGatherV2", "float32[16, 8], int32[4, 6] -> float32[4, 6, 8]", 0), ("i0", "i1", "t0", "t1")),
        (make("Select", "bool[4, 1, 8], float32[4, 6, 8], float32[4, 6, 8] -> float32[4, 6, 8]"), ("d0", "d2")),
        (make("Cummax", "float32[4, 8] -> float32[4, 8], int64[4, 8]", axis=1), ("d0",)),
        (make("SoftmaxCrossEntropyWithLogits", "float32[4, 8], float32[4, 8] -> float32[4], float32[4, 8]"), ("b",)),
    ],
    ids=lambda value: value.type if hasattr(value, "type") else "",
)  # fmt: skip
def test_dims_that_may_be_cut(op, cuttable):
    assert signature(op).cuttable == cuttable


@pytest.mark.parametrize(
    ("name", "combine"),
    [("ReduceSum", Combine.SUM), ("ReduceMean", Combine.MEAN), ("ReduceMax", Combine.MAX), ("ReduceMin", Combine.MIN)],
)
def test_partial_reductions_are_combined_in_kind(name, combine):
    op = make(name, "float32[4, 8] -> float32[4, 1]", (1,), True)
    found = place(op, signature(op), OpStrategy(((2, 4),)), 8)
    assert found.partial is not None and found.partial.combine is combine
    assert found.outputs[0].slice_shape == (2, 1)


def test_segments_are_partial_sums_of_the_rows():
    op = make("UnsortedSegmentSum", "float32[16, 8], int32[16] -> float32[4, 8]", 4)
    found = place(op, signature(op), OpStrategy(((2, 2), (2,))), 4)
    assert found.partial is not None and found.partial.combine is Combine.SUM
    assert found.outputs[0].slice_shape == (4, 4)


@pytest.mark.parametrize(
    ("equation", "types", "inputs", "output"),
    [
        ("bsd,dhk->bshk", "float32[4, 6, 8], float32[8, 2, 3] -> float32[4, 6, 2, 3]", ("bsd", "dhk"), "bshk"),
        ("ij, jk", "float32[4, 6], float32[6, 8] -> float32[4, 8]", ("ij", "jk"), "ik"),
        ("ba", "float32[4, 6] -> float32[6, 4]", ("ba",), "ab"),
        ("ik,kj,j->i", "float32[4, 6], float32[6, 8], float32[8] -> float32[4]", ("ik", "kj", "j"), "i"),
        ("...d,de->...e", "float32[4, 6, 8], float32[8, 2] -> float32[4, 6, 2]", (("_1", "_0", "d"), "de"), ("_1", "_0", "e")),
    ],
)  # fmt: skip
def test_an_equation_names_the_dims(equation, types, inputs, output):
    sig = signature(make("Einsum", types, equation=equation))
    assert sig.inputs == tuple(map(tuple, inputs)) and sig.outputs == (tuple(output),)
    assert flops_of(sig) == 2 * math.prod(sig.sizes.values())


def test_a_dim_of_one_that_is_not_copied_stays_whole():
    op = make("Tile", "float16[1, 1] -> float16[1, 6]", (1, 6))
    assert place(op, signature(op), OpStrategy(((1, 2),)), 2).outputs[0].slice_shape == (1, 3)
    with pytest.raises(InvalidStrategyError, match="must stay whole"):
        place(op, signature(op), OpStrategy(((2, 1),)), 2)


def test_logical_reductions_are_combined_as_integers():
    op = make("ReduceAny", "bool[4, 8] -> bool[4]", (1,), False)
    found = place(op, signature(op), OpStrategy(((1, 4),)), 4)
    assert found.partial is not None and found.partial.dtype == "int32"


@pytest.mark.parametrize(
    ("source", "target", "first", "second"),
    [
        ((32, 64), (8, 4, 2, 32), ("g0", "g1"), ("g0", None, "g1", None)),
        ((8, 4, 64), (32, 64), ("g0", None, "g1"), ("g0", "g1")),
        ((8, 16, 4, 8), (128, 32), ("g0", None, "g1", None), ("g0", "g1")),
        ((4, 1, 8), (4, 8), ("g0", None, "g1"), ("g0", "g1")),
        ((6, 4), (4, 6), ("g0", None), ("g0", None)),
        ((8,), (1, 8), ("g0",), (None, "g0")),
    ],
)
def test_reshape_passes_cuts_of_major_dims(source, target, first, second):
    sig = signature(make("Reshape", f"float16{[*source]} -> float16{[*target]}", target))
    assert sig.inputs == (first,) and sig.outputs == (second,)
    assert not sig.shardable


def attention(layout: int, query: str, key: str, sparse_mode: int = 0, mask: str = ""):
    masks = (None,) * (6 if mask else 7)
    inputs = ", ".join(filter(None, (query, key, key, mask)))
    types = f"{inputs} -> float32[4, 8, 32, 8], float32[4, 8, 32, 8], float16[1], {query}"
    scalars = (8, 1.0, 0.25, 2147483647, 2147483647, 0, layout, sparse_mode)
    return make("FlashAttentionScore", types, *masks, *scalars, positions=(0, 1, 2, 6) if mask else (0, 1, 2))


@pytest.mark.parametrize("mark", ["enable_ring_attention", "enable_flash_sp"])
def test_attention_in_a_ring_is_refused_in_words(mark):
    plain = attention(1, "float16[4, 8, 32, 16]", "float16[4, 8, 32, 16]")
    signature(replace(plain, attributes={mark: False}))
    with pytest.raises(InputError, match=rf"\(FlashAttentionScore\) is marked {mark}.*sparse_mode=2 or 3"):
        signature(replace(plain, attributes={mark: True}))


def test_attention_is_cut_by_batch_heads_and_query_sequence():
    sig = signature(attention(1, "float16[4, 8, 32, 16]", "float16[4, 8, 32, 16]"))
    assert sig.mesh == ("b", "n", "s")
    assert sig.inputs == (("b", "n", "s", None), ("b", "n", None, None), ("b", "n", None, None))
    assert sig.unit is Unit.CUBE
    points = sig.sizes["b"] * sig.sizes["n"] * sig.sizes["s"]
    assert sig.flops_per_point * points == 4 * 4 * 8 * 32 * 32 * 16


def flops_of(sig):
    return sig.flops_per_point * math.prod(sig.sizes[d] for d in sig.mesh)


def packed(*ends, sparse_mode=3):
    tokens, statistics = "float16[128, 8, 16]", "float32[128, 8, 8]"
    types = f"{tokens}, {tokens}, {tokens} -> {statistics}, {statistics}, float16[1], {tokens}"
    scalars = (8, 1.0, 0.25, 2147483647, 2147483647, 0, 4, sparse_mode)
    return signature(make("FlashAttentionScore", types, *ends, *scalars, positions=(0, 1, 2)))


@pytest.mark.parametrize("sparse_mode", [0, 3])
def test_packed_samples_take_what_a_batch_of_them_takes(sparse_mode):
    batch = signature(attention(0, "float16[4, 32, 128]", "float16[4, 32, 128]", sparse_mode))
    ends = (32, 64, 96, 128)
    assert flops_of(packed(ends, ends, sparse_mode=sparse_mode)) == flops_of(batch)


def test_packed_samples_of_several_lengths_take_the_squares_of_these():
    ends = (64, 112, 120, 128)
    assert flops_of(packed(ends, ends)) == 8 * 2 * (16 + 16) * (64**2 + 48**2 + 8**2 + 8**2) / 2


def test_packed_samples_of_unknown_lengths_are_counted_as_one():
    assert flops_of(packed()) == 8 * 2 * (16 + 16) * 128**2 / 2


@pytest.mark.parametrize(("layout", "query", "value"), [
    (1, "float16[4, 8, 32, 24]", "float16[4, 8, 32, 16]"), (0, "float16[4, 32, 192]", "float16[4, 32, 128]"),
])  # fmt: skip
def test_values_may_be_narrower_than_keys(layout, query, value):
    types = f"{query}, {query}, {value} -> float32[4, 8, 32, 8], float32[4, 8, 32, 8], float16[1], {value}"
    scalars = (8, 1.0, 0.25, 2147483647, 2147483647, 0, layout, 0)
    sig = signature(make("FlashAttentionScore", types, *(None,) * 7, *scalars, positions=(0, 1, 2)))
    assert flops_of(sig) == 4 * 8 * 32 * 32 * 2 * (24 + 16)


@pytest.mark.parametrize(("sparse_mode", "rising"), [(0, None), (2, "s"), (3, "s")])
def test_only_a_causal_mask_gives_later_tokens_more_to_do(sparse_mode, rising):
    sig = signature(attention(1, "float16[4, 8, 32, 16]", "float16[4, 8, 32, 16]", sparse_mode=sparse_mode))
    assert sig.rising == rising


def test_grouped_queries_limit_the_cut_of_heads():
    sig = signature(attention(1, "float16[4, 8, 32, 16]", "float16[4, 2, 32, 16]"))
    assert sig.sizes["n"] == 2
    points = sig.sizes["b"] * sig.sizes["n"] * sig.sizes["s"]
    assert sig.flops_per_point * points == 4 * 4 * 8 * 32 * 32 * 16


def test_a_single_key_value_head_is_read_whole():
    sig = signature(attention(1, "float16[4, 8, 32, 16]", "float16[4, 1, 32, 16]"))
    assert sig.sizes["n"] == 8 and sig.inputs[1] == ("b", None, None, None)


def test_bsh_counts_heads_not_elements():
    sig = signature(attention(0, "float16[4, 32, 128]", "float16[4, 32, 64]"))
    assert sig.sizes == {"b": 4, "s": 32, "n": 4}
    assert sig.mesh == ("b", "s", "n")


@pytest.mark.parametrize(("sparse_mode", "mask", "dims"), [
    (2, "uint8[2048, 2048]", (None, None)), (0, "uint8[32, 32]", ("s", None)), (0, "uint8[4, 1, 32, 32]", ("b", None, "s", None)),
])  # fmt: skip
def test_masks_are_cut_with_the_scores_unless_compressed(sparse_mode, mask, dims):
    sig = signature(attention(1, "float16[4, 8, 32, 16]", "float16[4, 8, 32, 16]", sparse_mode, mask))
    assert sig.inputs[3] == dims
    assert sig.entries == sig.inputs


def test_dense_is_cut_by_all_devices_or_not_at_all():
    op = make("Dense", "float16[16, 32], float16[64, 32] -> float16[16, 64]", None)
    assert place(op, signature(op), OpStrategy(((8, 1), (1, 1))), 8).outputs[0].slice_shape == (2, 64)
    with pytest.raises(InvalidStrategyError, match="always cuts the first dim of Dense by 8"):
        place(op, signature(op), OpStrategy(((4, 1), (1, 1))), 8)


@pytest.mark.parametrize(("op", "message"), [
    (make("StridedSlice", "float16[4] -> float16[2]", (0,), (2,), (1,), 0, 0, 1), "ellipsis"),
    (make("StridedSlice", "float16[4] -> float16[2]", None, (2,), (1,)), "begin must be a tuple"),
    (make("Tile", "float16[4, 2] -> float16[4, 4]", (2,)), "a multiple for every dim"),
])  # fmt: skip
def test_forms_that_cannot_be_sharded_are_explained(op, message):
    with pytest.raises(InputError, match=message):
        signature(op)
