"""The problem of a network on one mesh."""

from ms_symtensor.search.space.family import Single
from ms_symtensor.search.tables.problem import problem_of_family, shortened


def problem(graph, cluster, mesh):
    """That of `graph` on the devices of `mesh`: of a network with few of its blocks, which stands for it."""
    few, kinds = shortened(graph)
    return problem_of_family(few, cluster, Single(mesh), of=kinds)
