"""Which ranks share what: groups of rank 0 on MindFormers' meshes (mindformers/pynative/distributed/parallel_dims.py).

From the outside in a dense mesh is stages x replicas x (data x context) x tensor, a sparse one stages x replicas x efsdp x expert
parallelism.
"""

from ms_symtensor.targets.mindformers_pynative.degrees import Degrees

Ranks = tuple[int, ...]


def strided(count: int, stride: int) -> Ranks:
    """`count` ranks from 0, `stride` apart."""
    return tuple(range(0, count * stride, stride))


def tensor_group(degrees: Degrees) -> Ranks:
    """Ranks of tensor parallelism."""
    return strided(degrees.tensor, 1)


def expert_group(degrees: Degrees) -> Ranks:
    """Ranks among which experts are divided."""
    return strided(degrees.expert, 1)


def ulysses_group(degrees: Degrees) -> Ranks:
    """Ranks that exchange sequence for heads."""
    return strided(degrees.ulysses_degree, degrees.tensor)


def context_group(degrees: Degrees) -> Ranks:
    """Ranks that gather keys and values."""
    ulysses = degrees.ulysses_degree
    return strided(degrees.context // ulysses, degrees.tensor * ulysses)


def border_ranks(degrees: Degrees) -> Ranks:
    """A rank and its neighbour on the next stage."""
    return (0, degrees.device_num // degrees.pipeline)
