"""Which outputs gradients read, as far as a single table cannot tell."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tensors import End, Reader, Tensor

Output = tuple[End, str]
"""An output, or a Cast of it, by its element type."""


@dataclass(frozen=True)
class Reads:
    """What the gradients of `of` read."""

    of: Problem

    @cached_property
    def anywhere(self) -> set[Output]:
        """The outputs that a gradient reads somewhere, in the element type in which it does."""
        return {
            (tensor.origin.root, tensor.dtype)
            for tensor in self.of.between
            if self._may_be_output(tensor) and _is_read(tensor, tensor.readers)
        }

    @cached_property
    def elsewhere(self) -> set[Output]:
        """Those of which a gradient may read the same tensor, unmoved, in layouts of which no single table knows.

        What is read where a Reshape left it is the output itself only where the reader that decides its layout reads that, too.
        """
        tables: Counter[Output] = Counter()
        found = set()
        for tensor in self.of.between:
            origin = tensor.origin
            if origin.cast_of is None and tensor.maker == origin.root and not tensor.maker_keeps:
                tables[origin.root, tensor.dtype] += _is_read(tensor, tensor.readers)
            elif tensor.maker_keeps and origin.cast_of is None and tensor.maker != origin.root:
                continue
            elif self._may_be_output(tensor) and _is_read(tensor, tensor.readers):
                found.add((origin.root, tensor.dtype))
        return found | {key for key, number in tables.items() if number > 1}

    def _may_be_output(self, tensor: Tensor) -> bool:
        """Whether `tensor` is an output, or a Cast of one to another element type: one that is cast there and back is neither."""
        (number, _, index), cast_of = tensor.origin.root, tensor.origin.cast_of
        return cast_of is None or number < 0 or tensor.dtype != self.of.known.items[number].op.outputs[index].dtype


def _is_read(tensor: Tensor, readers: Iterable[Reader]) -> bool:
    """Whether a gradient reads `tensor` as it is, and no Cast of it."""
    return tensor.maker_keeps or any(reader.kept and reader.kept_as == tensor.dtype for reader in readers)
