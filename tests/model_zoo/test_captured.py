"""Networks of the zoo that MindSpore captures."""

import math

import pytest

from model_zoo.captured import CAPTURED, build, changed_sizes
from ms_symtensor.errors import InputError

WEIGHTS = {
    "qwen2_5_vl_7b": 8_292_166_656,  # https://huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct, the sum of its tensors
    "resnet50": 25_557_032,  # torchvision
    "inception_v3": 23_834_568,  # torchvision, without the auxiliary classifier
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", WEIGHTS)
def test_as_many_weights_as_published(name: str) -> None:
    pytest.importorskip("mindspore")
    cell, inputs = build({"network": name})
    assert sum(math.prod(p.shape) for p in cell.trainable_params()) == WEIGHTS[name]
    assert all(tensor.shape[0] == CAPTURED[name].sizes["batch_size"] for tensor in inputs)


@pytest.mark.parametrize(
    "name, options, said",
    [
        ("resnet50", {"num_layers": 4}, "resnet50 has no num_layers; its sizes: batch_size, image_size, classes"),
        ("lstm_lm", {"hidden_size": "wide"}, "hidden_size is wide: give a whole number above 0"),
        ("lstm_lm", {"hidden_size": 0}, "hidden_size is 0"),
        ("inception_v3", {"compute_dtype": "float16"}, "no form in float16; known: float32"),
    ],
)
def test_sizes_that_a_network_has_not_are_refused(name: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match="^" + name) as error:
        changed_sizes(name, options)
    assert said in str(error.value)


def test_sizes_are_kept_as_texts() -> None:
    assert changed_sizes("qwen2_5_vl_7b", {"num_layers": 4, "compute_dtype": "float32"}) == {
        "num_layers": "4",
        "compute_dtype": "float32",
    }
