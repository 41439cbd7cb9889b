"""The problem of a network on one mesh."""

from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.memory import few_blocks
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.tables.problem import problem_of_family


def problem(graph, cluster, mesh):
    """That of `graph` on the devices of `mesh`: of a network with few of its blocks, which stands for it."""
    folded = fold(graph)
    return problem_of_family(few_blocks(graph, folded), cluster, Single(mesh), of=folded.kinds)
