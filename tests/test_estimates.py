"""benchmarks/estimates.py: a configuration of the corpus has one price by three commands."""

from benchmarks.corpus_requests import Request
from benchmarks.estimates import EQUAL, check, configuration, passed

DEGREES = {
    "data_parallel": 2, "model_parallel": 2, "sequence_parallel": True, "context_parallel": 1, "expert_parallel": 1,
    "pipeline_stages": 2, "micro_batch_num": 4, "pp_interleave_num": 1, "optimizer_level": 3,
}  # fmt: skip


def test_a_configuration_has_one_price() -> None:
    arguments = configuration(Request("small", "gpt2_xl 8 16 --num-layers 4 --fix data_parallel=8"), DEGREES, 2)
    assert "--fix=optimizer_level=1" in arguments and "data_parallel=8" not in arguments
    found = check("small", arguments)
    assert passed(found) and found["differs"] <= EQUAL and found["step_time_s"] > 0


def test_what_one_command_refuses_the_other_refuses() -> None:
    arguments = configuration(Request("small", "gpt2_xl 8 16 --num-layers 4"), {**DEGREES, "data_parallel": 8}, 0)
    found = check("small", arguments)
    assert found["refused"] and passed(found)
    assert not passed({**found, "refused": False})
