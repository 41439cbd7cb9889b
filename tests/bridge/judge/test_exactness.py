"""Predicted programs equal compiled ones: the 22 sample cases of benchmarks/exactness.py."""

import pytest

from benchmarks.exactness import is_near, line, passed, run_model
from benchmarks.exactness_cases import ALONE, SAMPLE, SELECTED, small_config_of


def test_there_are_twenty_two():
    assert sum(map(len, SAMPLE.values())) == 22


SHORT = {"gpt2_xl": SAMPLE["gpt2_xl"][-1:]}


@pytest.mark.parametrize(
    ("model", "numbers"), [*SHORT.items(), *(pytest.param(*one, marks=pytest.mark.matrix) for one in SAMPLE.items())]
)
def test_prediction_equals_program(model, numbers):
    for result in run_model(model, small_config_of(model), numbers):
        assert result["accepted"], line(result)
        assert result["differences"] == [], line(result)
        assert result["parameters_equal"] and result["unsynchronised_equal"], line(result)
        assert is_near(result), line(result)


@pytest.mark.parametrize(
    ("model", "numbers"),
    [
        pytest.param("qwen_7b_lora", (4, 9), marks=pytest.mark.matrix),
        ("mixtral_8x7b", (3, 7)),
        ("deepseek_v3", (6,)),
        pytest.param("llama3_8b", (SELECTED + 3, SELECTED + 7), marks=pytest.mark.matrix),
        pytest.param("mixtral_8x7b", (ALONE + 1, ALONE + 2), marks=pytest.mark.matrix),
    ],
)
def test_frozen_parameters_experts_and_selections_are_predicted_exactly(model, numbers):
    for result in run_model(model, small_config_of(model), numbers):
        assert is_near(result) and passed([result]), line(result)
