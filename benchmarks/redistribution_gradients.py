"""The gradients of redistributions as MindSpore writes them, operator by operator, and what several consumers share of both."""

from dataclasses import dataclass

from ms_symtensor.program.backward import MOVE_GRADIENT
from ms_symtensor.tensor.redistribution import Step


def backward(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The gradient's operators for `steps`, in the order in which they run.

    The names are those of 2.8 and later: before, SplitWithSize is Split.
    """
    return tuple(_gradient(step) for step in reversed(steps))


@dataclass(frozen=True)
class FanOut:
    """The operators between one producer and all of its consumers, each counted once however many consumers share it.

    `forward` lists operators after those they need; `backward` runs consumer by consumer, then what they share.
    """

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]


def fan_out(chains: tuple[tuple[Step, ...], ...]) -> FanOut:
    """What remains of the redistributions `chains` (one per consumer) of one producer's output.

    In the forward program equal beginnings are shared. In the gradient, which is made before that, only a leading
    AllGather (a Reshape may precede it) is shared, and only if all leading AllGathers of this producer are the same.
    """
    forward = {chain[: length + 1]: chain[length] for chain in chains for length in range(len(chain))}
    heads = {head for chain in chains if (head := _leading_gather(chain))}
    shared = heads.pop() if len(heads) == 1 else ()
    ahead = [chain[len(shared) :] if shared and chain[: len(shared)] == shared else chain for chain in chains]
    return FanOut(tuple(forward.values()), tuple(s for chain in ahead for s in backward(chain)) + backward(shared))


def _leading_gather(chain: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps up to the first AllGather if nothing but Reshape comes before it, else none."""
    for length, step in enumerate(chain, 1):
        if step.kind == "AllGather":
            return chain[:length]
        if step.kind != "Reshape":
            break
    return ()


def _gradient(step: Step) -> Step:
    kind = MOVE_GRADIENT[step.kind]
    dim, concat_dim = (step.concat_dim, step.dim) if step.kind == "AlltoAll" else (step.dim, None)
    return Step(kind, step.output_shape, step.input_shape, step.group, dim, concat_dim, step.pieces)
