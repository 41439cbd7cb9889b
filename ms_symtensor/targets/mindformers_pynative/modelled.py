"""What hyper-parallel sends around MindFormers' own calls: parameters of sharded units, gradients, the pipeline's borders.

hyper-parallel's `fully_shard` (hyper_parallel/platform/mindspore/fully_shard/state.py, param.py) gathers each parameter by a
collective of its own and reduces each gradient in float32 by another; replicas are summed at the last micro-batch. MindFormers
turns the reduction off inside a pipeline but for the last micro-batch, and asks for no fusion (`comm_fusion` False).
"""

from dataclasses import dataclass

from ms_symtensor.targets.mindformers_pynative.calls import Call, Unit

FLOAT32_B = 4


@dataclass(frozen=True)
class Modelled:
    """A collective that hyper-parallel makes: how often in a step, and for what."""

    call: Call
    count: int
    """In one step of this rank."""
    by: str
    """`fully_shard`, `context_parallel` or `pipeline`."""


def of_units(units: tuple[Unit, ...], micro_batches: int, pipelined: bool) -> tuple[Modelled, ...]:
    """What the units send in one step of `micro_batches`."""
    found: dict[Call, int] = {}

    def add(phase: str, kind: str, dtype: str, size_B: int, ranks: int, times: int) -> None:
        if ranks > 1 and times:
            call = Call(phase, kind, dtype, size_B, ranks)
            found[call] = found.get(call, 0) + times

    reductions = 1 if pipelined else micro_batches
    for unit in units:
        for parameter in unit.parameters:
            shards = 1 if parameter.whole else unit.shards
            shard = parameter.elements // shards
            add("forward", "all_gather", parameter.dtype, parameter.size_B // shards, shards, micro_batches)
            if unit.reshards:
                add("backward", "all_gather", parameter.dtype, parameter.size_B // shards, shards, micro_batches)
            gradient_B = parameter.elements * FLOAT32_B
            add("backward", "reduce_scatter", "float32", gradient_B, shards, reductions)
            replicas = unit.replicas * (unit.shards if parameter.whole else 1)
            add("backward", "all_reduce", "float32", shard * FLOAT32_B, replicas, 1)
            add("backward", "all_reduce", "float32", shard * FLOAT32_B, parameter.partial, 1)
    return tuple(Modelled(call, count, "fully_shard") for call, count in sorted(found.items()))


def of_borders(hidden_B: int, dtype: str, borders: int, micro_batches: int) -> tuple[Modelled, ...]:
    """Sends and receives over `borders` with a neighbour, hidden states of `hidden_B` one way and gradients the other."""
    if not borders:
        return ()
    count = borders * micro_batches
    return (
        Modelled(Call("forward", "send_receive", dtype, hidden_B, 2), count, "pipeline"),
        Modelled(Call("backward", "send_receive", dtype, hidden_B, 2), count, "pipeline"),
    )
