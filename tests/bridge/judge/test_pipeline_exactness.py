"""Predicted programs of pipeline stages equal compiled ones: the five sample cases of benchmarks/pipelines.py."""

import pytest

from benchmarks.pipeline_cases import SAMPLE
from benchmarks.pipelines import all_passed, line, run_sample


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[pytest.mark.matrix] if name == "llama2_7b" else []) for name in SAMPLE]
)
def test_prediction_equals_program(model):
    for result in run_sample(model):
        assert all_passed([result]), line(result)
