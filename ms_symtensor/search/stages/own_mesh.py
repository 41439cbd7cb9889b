"""A shape by itself, on its own mesh: a family prices many meshes, and batches, by the layouts and moves of one.

Where sizes do not divide on a member as they do on the representative, MindSpore carries tensors there in another way.
"""

from collections.abc import Mapping

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.stages.layout_candidates import Candidate, fixed_candidate
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.tables.problem import problem_of_family


def priced(
    network: Network, row: Candidate, strategies: Mapping[str, OpStrategy], rules: Mapping[str, Rule] | None = None
) -> Candidate:
    """`row`, whose `strategies` are given, at the costs of its own mesh.

    Errors: InvalidStrategyError for what MindSpore rejects there.
    """
    short, cluster = network.short(row.shape.batch), row.problem.known.pricer.cluster
    of = problem_of_family(short, cluster, Single(row.shape.mesh), rules, fixed=strategies, like=row.problem)
    return fixed_candidate(of, row.shape, row.level)
