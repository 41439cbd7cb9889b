"""Numbers that do not go together are told with the one condition that they break, and with the nearest that work."""

import pytest

from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.arithmetic.check import require_arithmetic
from ms_symtensor.search.constraints.arithmetic.facts import Cuttable, Facts
from ms_symtensor.search.constraints.limits import limits_of

WEIGHTS = (Cuttable("query.matmul (MatMul)", {"k": 96, "n": 32}), Cuttable("up.matmul (MatMul)", {"k": 96, "n": 64}))
NET = Facts(
    8, batch=16, blocks=4, samples=16, model="net", weights=WEIGHTS, experts=(Cuttable("experts", {"b0": 6}),),
    attention=(Cuttable("core", {"s": 128, "n": 12}),),
)  # fmt: skip


def said(pins: str, most: str = "", facts: Facts = NET) -> str:
    """What is said of pins and bounds, `name=number name=number`; nothing where they go together."""
    pairs, below = ([tuple(one.split("=")) for one in text.split()] for text in (pins, most))
    try:
        require_arithmetic(facts, limits_of(pairs, below))
    except InputError as error:
        assert len(str(error)) <= 430
        return str(error)
    return ""


@pytest.mark.parametrize(
    "pins, most, told",
    (
        ("pipeline_stages=8", "", "8 stages, 4 blocks: every stage holds a block; nearest that works: pipeline_stages = 4"),
        ("pipeline_stages=3", "", "3 stages do not divide 8 devices; nearest that work: pipeline_stages = 2 or 4"),
        ("micro_batch_num=3", "", "3 micro-batches do not divide a global batch of 16 samples; nearest that work:"
         " micro_batch_num = 2 or 4"),
        ("pipeline_stages=4 micro_batch_num=2", "", "4 stages want at least as many micro-batches, not 2; nearest that work:"
         " pipeline_stages = 2, or micro_batch_num = 4"),
        ("pipeline_stages=4", "micro_batch_num=3", "pipeline_stages = 4, micro_batch_num <= 3: 4 stages want at least as many"),
        ("data_parallel=4 model_parallel=4", "", "4 × 4 = 16 devices, not 8; nearest that work: data_parallel = 2, or"
         " model_parallel = 2, or 16 devices"),
        ("pipeline_stages=4 model_parallel=4", "", "4 × 4 = 16 devices, not 8"),
        ("pipeline_stages=2 data_parallel=2 model_parallel=4", "", "2 × 2 × 4 = 16 devices, not 8"),
        ("expert_parallel=3", "", "there is no degree of 3 on 8 devices; nearest that work: expert_parallel = 2, or 24 devices"),
        ("expert_parallel=4", "", "expert_parallel = 4: no dims give 4 equal slices of experts, whose dims are b0 (6);"
         " nearest that works: expert_parallel = 2"),
        ("pipeline_stages=4 context_parallel=4", "", "4 × 4 = 16 devices, not 8"),
        ("pp_interleave_num=2 pipeline_stages=4", "", "4 stages × 2 virtual stages = 8, 4 blocks: every virtual stage"),
        ("pp_interleave_num=2 pipeline_stages=1", "", "virtual stages want several pipeline stages"),
        ("pp_interleave_num=8", "", "at least 2 stages × 8 virtual stages = 16, 4 blocks"),
        ("optimizer_level=3 pipeline_stages=2", "", "optimizer_level = 3, pipeline_stages = 2: optimizer level3 is for one"),
        ("optimizer_level=2 pipeline_stages=1 micro_batch_num=4", "", "optimizer level2 is not for micro-batches on one stage"),
        ("sequence_parallel=yes", "model_parallel=1", "sequence_parallel = yes, model_parallel <= 1: sequence parallelism cuts"),
        ("recompute=5", "", "the network has 4 repeated blocks; nearest that works: recompute = 4"),
        ("data_parallel=8 micro_batch_num=4", "", "16 samples in 4 micro-batches are 4 each, which do not divide into 8 equal"
         " parts; nearest that work: data_parallel = 4, or micro_batch_num = 2"),
    ),
)  # fmt: skip
def test_the_broken_condition_is_told_with_its_numbers_and_what_works(pins, most, told):
    assert told in said(pins, most)


@pytest.mark.parametrize(
    "pins",
    (
        "data_parallel=4 model_parallel=2", "pipeline_stages=4 data_parallel=2", "pipeline_stages=2 pp_interleave_num=2",
        "context_parallel=8", "expert_parallel=2", "optimizer_level=2 pipeline_stages=2", "recompute=full", "model_parallel=8",
        "data_parallel=2", "pipeline_stages=4 micro_batch_num=16", "optimizer_level=3",
    ),
)  # fmt: skip
def test_what_goes_together_is_not_refused(pins):
    assert said(pins) == ""


def test_a_wrong_pin_takes_no_innocent_one_along():
    found = said("pipeline_stages=2 micro_batch_num=4 optimizer_level=1 model_parallel=3 recompute=2")
    assert found.startswith(
        "model_parallel = 3: there is no degree of 3 on 8 devices; nearest that work: model_parallel = 2 or 4"
    )
    assert "micro_batch" not in found and "recompute" not in found


def test_what_works_is_told_beside_the_other_pins():
    assert said("pipeline_stages=4 model_parallel=3").endswith("nearest that works: model_parallel = 2")
    found = said("pipeline_stages=4 data_parallel=2 model_parallel=2 context_parallel=8")
    assert (
        "4 × 8 = 32 devices, not 8; nearest that works: context_parallel = 2" not in found
        and "pipeline_stages = 1" in found
    )


def test_two_pins_that_are_wrong_by_themselves_are_told_both():
    found = said("pipeline_stages=3 expert_parallel=5")
    assert "3 stages do not divide 8 devices; nearest that work: pipeline_stages = 2 or 4" in found
    assert "expert_parallel = 5: there is no degree of 5 on 8 devices; nearest that works: expert_parallel = 2" in found


def test_what_no_number_of_stages_allows_is_told():
    odd = Facts(8, batch=9, blocks=4, samples=9, model="net")
    found = said("pp_interleave_num=2 micro_batch_num=9", facts=odd)
    assert (
        found.startswith("pp_interleave_num = 2: ")
        and "stages above 1 divides 8 devices and a divisor of 9 samples" in found
    )


def test_more_stages_than_samples_are_told():
    one = Facts(8, batch=1, blocks=4, samples=1, model="net")
    found = said("pipeline_stages=2 micro_batch_num=3", facts=one)
    assert "2 stages want at least as many micro-batches, and 1 samples are 1 at most" in found


def test_what_is_not_known_is_not_judged():
    assert said("pipeline_stages=8 micro_batch_num=9 expert_parallel=1", facts=Facts(8)) == ""
    assert "3 stages do not divide 8 devices" in said("pipeline_stages=3", facts=Facts(8))


def test_devices_that_the_cluster_has_not_are_no_remedy():
    few = Facts(8, max_devices=8)
    assert said("data_parallel=4 model_parallel=4", facts=few).endswith("data_parallel = 2, or model_parallel = 2")


def test_groups_that_mindspore_does_not_form():
    found = said("pipeline_stages=2", facts=Facts(24, blocks=4, batch=16))
    assert (
        "24 devices in 2 stages are 12 each, and MindSpore forms communication groups on 1, 2, 4 or a multiple of 8"
        in found
    )


def test_a_network_that_stays_whole_says_why():
    whole = Facts(8, batch=16, blocks=0, model="net", whole="it has no repeated blocks (cells of one list)")
    assert "net cannot be laid out over pipeline stages: it has no repeated blocks" in said(
        "pipeline_stages=2", facts=whole
    )
    assert "net cannot be split into micro-batches: it has no repeated blocks" in said("micro_batch_num=2", facts=whole)


def test_an_operator_without_a_distributed_form_says_what_to_write():
    bound = Facts(4, weights=(Cuttable("fc (Dense)", {}, "fc (Dense): MindSpore has no distributed form"),))
    assert said("model_parallel=4", facts=bound).startswith(
        "model_parallel = 4: fc (Dense): MindSpore has no distributed form"
    )


def test_large_numbers_are_looked_through_at_once():
    large = Facts(1 << 18, batch=1 << 20, blocks=96, samples=1 << 20, weights=WEIGHTS * 40)
    assert "no degree of 3" in said("expert_parallel=3 model_parallel=8 pipeline_stages=16", facts=large)
    assert said("model_parallel=8 pipeline_stages=32 data_parallel=64 micro_batch_num=256", facts=large) == ""


def test_divisors_ascend():
    assert divisors(36) == (1, 2, 3, 4, 6, 9, 12, 18, 36) and divisors(1) == (1,) and divisors(7) == (1, 7)
