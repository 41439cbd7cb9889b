"""The problem of a network on one mesh, its sums where one micro-batch runs on one stage, and what a choice costs there."""

import numpy as np

from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.memory import few_blocks
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.tables.problem import problem_of_family
from ms_symtensor.search.tables.tables import Tables
from ms_symtensor.search.tables.terms import Weights


def problem(graph, cluster, mesh):
    """That of `graph` on the devices of `mesh`: of a network with few of its blocks, which stands for it."""
    folded = fold(graph)
    return problem_of_family(few_blocks(graph, folded), cluster, Single(mesh), of=folded.kinds)


def factors(of, parameters, recomputed, price_s_per_B):
    """The tables to minimise on all members, with so large a share of the blocks recomputed, at a price of a byte."""
    members = np.arange(of.known.pricer.family.members)
    column = np.array(of.places.occurrences, dtype=float)[:, None] * np.ones(len(members))
    return Tables(of, parameters).factors(recomputed, price_s_per_B, Weights(*[column] * 6), members)


def totals(of, parameters, choice, recomputed=False):
    """Seconds and bytes of a choice of candidates on the first member; `recomputed`: all its blocks."""
    costs = Tables(of, parameters).by_place(np.array([choice]), np.zeros(1, dtype=np.intp)).of(0)
    occurs = np.array(of.places.occurrences, dtype=float)
    repeats = occurs * recomputed
    repeats[0] = 0.0
    seconds = occurs @ (costs.each_s + costs.once_s) + repeats @ costs.recompute_s
    kept_B = occurs @ (costs.kept_B + costs.at_rest_B) - repeats @ (costs.kept_B - costs.kept_recomputed_B)
    return (float(seconds) if np.isfinite(seconds) else float("inf")), float(kept_B)
