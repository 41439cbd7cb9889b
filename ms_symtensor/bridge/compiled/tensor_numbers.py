"""The tensors of a compiled program as numbers, with their sizes: what the count of live ones works on."""

from collections.abc import Iterable, Iterator

from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.tensor.graph import OpOutput, Source, TupleInput

CARRIES_GRADIENT = frozenset({"AllReduce", "ReduceScatter", "Cast", "AddN"})
"""What stands between the maker of a weight's gradient and the end of the program, or the sum of the micro-batches."""


class TensorNumbers:
    """Every output of every node of a program has a number, and a size in bytes in `sizes_B`."""

    def __init__(self, program: CompiledProgram) -> None:
        self._numbers: dict[OpOutput, int] = {}
        self.sizes_B: dict[int, int] = {}
        for node in program.nodes:
            for index, kind in enumerate(node.outputs):
                number = self._numbers[OpOutput(node.name, index)] = len(self._numbers)
                self.sizes_B[number] = kind.size_B

    def of(self, tensors: Iterable[OpOutput]) -> set[int]:
        return {self._numbers[tensor] for tensor in tensors}

    def made_by(self, node: Node) -> tuple[int, ...]:
        return tuple(self._numbers[OpOutput(node.name, index)] for index in range(len(node.outputs)))

    def read_by(self, node: Node) -> tuple[int, ...]:
        return tuple(self._numbers[tensor] for tensor in tensors_in(node.inputs))


def tensors_in(sources: Iterable[Source]) -> Iterator[OpOutput]:
    """The results of nodes among `sources`, those in tuples included."""
    for source in sources:
        if isinstance(source, TupleInput):
            yield from tensors_in(source.items)
        elif isinstance(source, OpOutput):
            yield source


def producers(sources: Iterable[Source]) -> Iterator[str]:
    """The names of the nodes whose results are among `sources`."""
    return (tensor.op for tensor in tensors_in(sources))
