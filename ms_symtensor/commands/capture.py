"""`symtensor capture`: save a network's graph, to plan where no MindSpore is installed."""

import argparse

from ms_symtensor.commands import options
from ms_symtensor.streams import show

TEXT = "save a network's graph, to plan where no MindSpore is installed"
EXAMPLES = ("symtensor capture net.py:factory --out graph.json",)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.add_model(command)
    options.add_out(command, ": the graph", "FILE", required=True)
    command.set_defaults(replace_shard=True)  # a graph has no strategies


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.commands.shared import model_of
    from ms_symtensor.tensor.graph_file import save

    model = model_of(chosen)
    save(model.graph, chosen.out)
    show(f"{model.name}: {len(model.graph.ops)} operators, {len(model.graph.parameters)} parameters, in {chosen.out}")
    return 0
