"""Small networks of the zoo with plans, for the tests that put plans onto networks."""

import sys
from collections import Counter
from functools import cache
from pathlib import Path

import mindspore as ms
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "strategy"))

from plans import data_times_tensor, plan_of, small

from model_zoo.network import build
from ms_symtensor.bridge.apply.training_step import GradientStep
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiled.collectives import collectives
from ms_symtensor.tensor.graph import Graph

SENS = ms.Tensor(np.float32(1))


class OtherStep(GradientStep):
    """The same under another name, which MindSpore puts into the names of the operators."""


def network(name: str = "llama2_7b", **changes):
    """A small network of the zoo, of two layers where nothing else is said, and its inputs."""
    return build(small(name, attention="self", **changes))


@cache
def captured(name: str, num_layers: int) -> Graph:
    """The graph that every network built so has."""
    cell, inputs = network(name, num_layers=num_layers)
    return capture(cell, *inputs)


def planned(name: str, data: int, tensor: int, sequence: bool = False, num_layers: int = 2, **settings):
    """Network, inputs, graph, and a plan on `data * tensor` devices."""
    cell, inputs = network(name, num_layers=num_layers)
    graph = captured(name, num_layers)
    return (
        cell,
        inputs,
        graph,
        plan_of(graph, data_times_tensor(graph, data, tensor, sequence), data * tensor, **settings),
    )


def summary(program) -> Counter:
    """The collectives of a compiled program, without their names and order."""
    return Counter((c.kind, c.ranks, str(c.input), str(c.output), c.parameter) for c in collectives(program))
