"""What hyper-parallel sends for sharded units."""

from ms_symtensor.targets.mindformers_pynative.calls import Call, Parameter, Unit
from ms_symtensor.targets.mindformers_pynative.modelled import of_borders, of_units

WEIGHT = Parameter("bfloat16", 1024)


def sent(unit: Unit, micro_batches: int = 1, pipelined: bool = False) -> dict[Call, int]:
    return {one.call: one.count for one in of_units((unit,), micro_batches, pipelined)}


def test_a_parameter_is_gathered_for_each_use_and_its_gradient_summed_in_float32() -> None:
    found = sent(Unit("Layer", (WEIGHT,), shards=8, replicas=1, reshards=True), micro_batches=4)
    assert found == {
        Call("forward", "all_gather", "bfloat16", 2048 // 8, 8): 4,
        Call("backward", "all_gather", "bfloat16", 2048 // 8, 8): 4,
        Call("backward", "reduce_scatter", "float32", 4096, 8): 4,
    }


def test_a_pipeline_reduces_once_a_step_and_keeps_what_was_gathered() -> None:
    found = sent(Unit("Layer", (WEIGHT,), shards=8, replicas=1, reshards=False), micro_batches=4, pipelined=True)
    assert found[Call("backward", "reduce_scatter", "float32", 4096, 8)] == 1
    assert Call("backward", "all_gather", "bfloat16", 256, 8) not in found


def test_replicas_are_summed_once_a_step() -> None:
    found = sent(Unit("Layer", (WEIGHT,), shards=4, replicas=2, reshards=True), micro_batches=3)
    assert found[Call("backward", "all_reduce", "float32", 1024, 2)] == 1


def test_a_parameter_that_does_not_divide_stays_whole_and_is_summed_over_all() -> None:
    whole = Parameter("float32", 6, whole=True, partial=2)
    found = sent(Unit("Layer", (whole,), shards=4, replicas=2, reshards=True))
    assert found == {
        Call("backward", "all_reduce", "float32", 24, 8): 1,  # shards and replicas
        Call("backward", "all_reduce", "float32", 24, 2): 1,  # ranks of tensor parallelism
    }


def test_a_border_is_crossed_both_ways_by_each_micro_batch() -> None:
    forward, backward = of_borders(1000, "bfloat16", borders=2, micro_batches=5)
    assert (forward.count, backward.count, forward.call.size_B) == (10, 10, 1000)
    assert of_borders(1000, "bfloat16", 0, 5) == ()
