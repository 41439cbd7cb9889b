"""The front of time against memory: what each plan gives for the memory that it saves."""

import itertools
from dataclasses import replace

from ms_symtensor.cli import main
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.models import planned, resolve
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.pareto import SHRINK, front
from tests.search.test_best import A2, GIB

MODEL = resolve("llama2_7b", 16, None, {"num_layers": 4})
REQUEST = Request(A2, 8, 16, MODEL.seq_length, 58 * GIB, limits=Limits({}, {"pipeline_stages": 1}))


def within(limit_B):
    return planned(MODEL, replace(REQUEST, limit_B=limit_B))[0]


def test_every_plan_is_smaller_and_slower_than_the_one_before():
    plans = front(within(58 * GIB), within)
    assert len(plans) > 2
    for before, after in itertools.pairwise(plans):
        assert after.prediction.peak_memory_B <= SHRINK * before.prediction.peak_memory_B
        assert after.prediction.step_time_s > before.prediction.step_time_s


def test_it_ends_where_nothing_fits():
    def nothing(limit_B):
        raise InfeasibleError("nothing fits")

    fastest = within(58 * GIB)
    assert front(fastest, nothing) == [fastest]


def test_a_smaller_plan_that_is_faster_takes_the_place_of_larger_ones():
    of = within(58 * GIB)

    def plan(step_s, peak_B):
        return replace(
            of, prediction=replace(of.prediction, time_s={"compute": step_s}, memory_B={"parameters": peak_B})
        )

    smaller = {int(SHRINK * 1000): plan(2.0, 800), int(SHRINK * 800): plan(1.5, 600), int(SHRINK * 600): plan(3.0, 100)}

    def plan_within(limit_B):
        if limit_B not in smaller:
            raise InfeasibleError("nothing fits")
        return smaller[limit_B]

    found = front(plan(1.0, 1000), plan_within)
    assert [one.prediction.step_time_s for one in found] == [1.0, 1.5, 3.0]


def test_a_network_without_repeated_blocks_has_a_front(tmp_path, capsys):
    size = ["--num-layers", "1", "--device-num", "4", "--global-batch-size", "8", "--seq-length", "512"]
    assert (
        main(["plan", "llama2_7b", *size, "--fix", "micro_batch_num=1", "--pareto", "--out", str(tmp_path / "plan")])
        == 0
    )
    assert "Time against memory" in capsys.readouterr().out
