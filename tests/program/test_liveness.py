"""Peaks of live tensors on programs small enough to count by hand."""

from ms_symtensor.program.liveness import Step, activation_peak_B, peak_B, schedule
from tests.program.zoo import program

SIZES = dict.fromkeys(range(10), 10)


def test_a_tensor_lives_from_its_maker_to_its_last_reader():
    steps = [Step((), (0,), False), Step((0,), (1,), False), Step((1,), (2,), False), Step((0, 2), (3,), True)]
    assert peak_B(steps, SIZES, ()) == 30
    assert peak_B(steps, SIZES, {0}) == 20


def test_views_share_memory():
    steps = [Step((), (0,), False), Step((0,), (1,), False, is_view=True), Step((1,), (2,), False)]
    assert peak_B(steps, SIZES, ()) == 20


def test_weight_gradients_go_first():
    forward, gradient, weight = Step((), (0,), False), Step((0,), (1,), True), Step((0,), (2,), True)
    assert schedule([forward, gradient, weight], {2}) == [0, 2, 1]


def test_a_weight_gradient_is_summed_before_the_next_one_is_made():
    first, second, sums = Step((0,), (1,), True), Step((0,), (2,), True), Step((1,), (3,), True)
    assert schedule([Step((), (0,), False), first, second, sums], {1, 2, 3}) == [0, 1, 3, 2]


def test_ranks_decide_before_the_listing():
    assert schedule([Step((), (0,), True, rank=2.0), Step((), (1,), True, rank=1.0)], ()) == [1, 0]


def test_copies_are_made_right_before_their_reader():
    recomputation = Step((0,), (1,), True, is_recomputed=True)
    twice = Step((1,), (2,), True, is_recomputed=True)
    first, second = Step((), (3,), True), Step((3, 2), (4,), True)
    assert schedule([Step((), (0,), False), recomputation, twice, first, second], ()) == [0, 3, 1, 2, 4]


def test_recompute_and_cuts_save_memory():
    from ms_symtensor.program.settings import Recompute

    blocks = {f"layers.{i}": Recompute() for i in range(2)}
    plain = activation_peak_B(program("llama2_7b-self", 2, 1))
    assert activation_peak_B(program("llama2_7b-self", 2, 1, recompute=blocks)) < plain
    assert activation_peak_B(program("llama2_7b-self", 4, 1)) < 0.6 * plain
