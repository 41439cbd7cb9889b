"""From the network with few blocks, in which the search decides, to the one with all of them."""

from collections.abc import Mapping

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.tensor.graph import Graph


def unfold(class_of: Mapping[str, int], short: Graph, strategies: Mapping[str, OpStrategy]) -> dict[str, OpStrategy]:
    """`strategies` of the network with few blocks, for the same network with all of its blocks, whose operators are of the
    classes `class_of` (`Fold.class_of`).
    """
    first = fold(short).class_of
    by_class = {first[name]: strategy for name, strategy in strategies.items()}
    return {name: by_class[number] for name, number in class_of.items() if number in by_class}
