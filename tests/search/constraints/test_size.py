import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.checked import batch_and_sequence, require_size_of
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, TensorType

TOKENS = TensorType((8, 64), "int32")
WEIGHTS = TensorType((8, 64), "float32")
LABELS = TensorType((8,), "int32")
IMAGES = TensorType((8, 3, 32, 32), "float32")
FLAT = TensorType((512,), "int32")
TIME_MAJOR = TensorType((60, 8, 16), "float32")
MASK = TensorType((64, 64), "float16")
SCALAR = TensorType((), "float32")


def of(*inputs):
    return Graph("net", tuple((f"x{i}", one) for i, one in enumerate(inputs)), (), (), Constant(None))


@pytest.mark.parametrize(
    ("inputs", "batch", "sequence", "told"),
    [
        ((TOKENS, TOKENS), 16, 64, r"global_batch_size is 16, but the inputs of net have 8 samples"),
        ((IMAGES, LABELS, SCALAR), 3, 1, None),  # 3 is a dim of the images
        ((IMAGES, LABELS, SCALAR), 5, 1, "global_batch_size is 5"),
        ((TOKENS, TOKENS), 8, 4096, "seq_length is 4096, but the inputs of net have 64 tokens a sample"),
        ((TOKENS, WEIGHTS), 8, 65, "seq_length is 65"),
        ((WEIGHTS,), 8, 65, None),  # features, it may be
        ((TOKENS, TOKENS), 8, 64, None),
        ((TOKENS,), 8, 63, None),  # the labels are the ids, one later
        ((TOKENS,), 4, 64, None),  # samples of two sequences
        ((TOKENS, TensorType((8, 32), "int32")), 8, 96, None),  # an encoder's and a decoder's
        ((IMAGES, LABELS), 8, 65, None),
        ((FLAT, FLAT), 8, 64, None),
        ((TIME_MAJOR,), 8, 60, None),
        ((TOKENS, MASK), 16, 64, None),
        ((), 8, 64, None),
    ],
)
def test_what_the_inputs_cannot_be_is_refused(inputs, batch, sequence, told):
    if told is None:
        require_size_of(of(*inputs), batch, sequence)
    else:
        with pytest.raises(InputError, match=told):
            require_size_of(of(*inputs), batch, sequence)


@pytest.mark.parametrize(
    "tensor, size", ((SCALAR, (1, 1)), (LABELS, (8, 1)), (TOKENS, (8, 64)), (TIME_MAJOR, (60, 8)), (IMAGES, (8, 1)))
)
def test_images_have_no_sequence(tensor, size):
    assert batch_and_sequence(of(tensor)) == size


@pytest.mark.parametrize(
    ("types", "length"), [(("ExpandDims", "Conv2D"), 1), (("Cast", "Conv1DExt"), 1), (("Transpose", "Conv1DExt"), 80)]
)
def test_channels_of_a_convolution_are_no_tokens(types, length):
    """[batch, channels, length] of a wave, and [batch, time, features] that are exchanged before it."""
    kind, source = TensorType((8, 80, 3000), "float32"), InputRef("x")
    ops = []
    for name in types:
        ops.append(Op(name, name, (source,), (kind,)))
        source = OpOutput(name)
    assert batch_and_sequence(Graph("net", (("x", kind),), (), tuple(ops), source)) == (8, length)
