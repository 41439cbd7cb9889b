"""The problem of a network on one mesh, its sums where one micro-batch runs on one stage, and what a choice costs there."""

from types import MappingProxyType

import numpy as np

from ms_symtensor.program.long_runs import EACH
from ms_symtensor.search.folded.folding import fold, shorten
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.tables.pricing import Pricer
from ms_symtensor.search.tables.problem import problem_of
from ms_symtensor.search.tables.tables import Tables
from ms_symtensor.search.tables.terms import Weights
from ms_symtensor.search.tables.variables import variables


def problem_of_family(graph, cluster, meshes, powers=MappingProxyType({})):
    """That of `graph` on all meshes of a family; `powers` as in `variables`."""
    return problem_of(graph, variables(graph, fold(graph), Pricer(cluster, meshes), powers=powers))


def problem(graph, cluster, mesh):
    """That of `graph` on the devices of `mesh`, with few of its blocks."""
    return problem_of_family(shorten(graph, fold(graph), 2 * EACH), cluster, Single(mesh))


def factors(of, parameters, recomputed, price_s_per_B, depths=None):
    """The tables to minimise on all members, with so large a share of the blocks recomputed, at a price of a byte; `depths`: of
    the network that it stands for.
    """
    members = np.arange(of.known.pricer.family.members)
    column = np.array(occurrences(depths or of.places.depths), dtype=float)[:, None] * np.ones(len(members))
    return Tables(of, parameters).factors(recomputed, price_s_per_B, Weights(*[column] * 6), members)


def totals(of, parameters, choice, recomputed=False):
    """Seconds and bytes of a choice of candidates on the first member; `recomputed`: all its blocks."""
    costs = Tables(of, parameters).by_place(np.array([choice]), np.zeros(1, dtype=np.intp)).of(0)
    occurs = np.array(occurrences(of.places.depths), dtype=float)
    repeats = occurs * recomputed
    repeats[0] = 0.0
    seconds = occurs @ (costs.each_s + costs.once_s) + repeats @ costs.recompute_s
    kept_B = occurs @ (costs.kept_B + costs.at_rest_B) - repeats @ (costs.kept_B - costs.kept_recomputed_B)
    return (float(seconds) if np.isfinite(seconds) else float("inf")), float(kept_B)
