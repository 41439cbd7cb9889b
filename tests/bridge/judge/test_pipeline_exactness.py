"""Predicted programs of pipeline stages equal compiled ones: the sample cases of benchmarks/pipelines.py."""

import pytest

from benchmarks.pipeline_cases import SAMPLE, SAMPLE_LAYERS, micro_config
from benchmarks.pipelines import all_passed, line, run_model

SHORT = {"gpt2_xl": SAMPLE["gpt2_xl"][:1]}


@pytest.mark.parametrize(
    ("model", "numbers"), [*SHORT.items(), *(pytest.param(*one, marks=pytest.mark.matrix) for one in SAMPLE.items())]
)
def test_prediction_equals_program(model, numbers):
    for result in run_model(model, numbers, micro_config(model, small=True, num_layers=SAMPLE_LAYERS)):
        assert all_passed([result]), line(result)
