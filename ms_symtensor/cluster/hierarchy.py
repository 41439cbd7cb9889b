"""Collectives over several topology levels: one formula from the levels' formulas, as HCCL composes them (NCCL: nccl.py).

A group has p_l members at level l (innermost first), p in all. Order of the stages (HCCL user guide, "hierarchical
communication"):

    AllReduce      ReduceScatter inside, AllReduce outside on the share that is left, AllGather inside
    AllGather      intra_first: inside, then outside with whole tensors; inter_first: outside on shares, then inside
    ReduceScatter  AllGather backwards
    AlltoAll       inside, then outside; each stage moves the whole input
    Broadcast      Scatter inside, Broadcast outside on the share, AllGather inside

Where the rules of the cluster allow it, the two levels of AllGather, ReduceScatter and AllReduce overlap ("Pipeline").
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import sympy

from ms_symtensor.algebra import symbols
from ms_symtensor.cluster import hccl, nccl
from ms_symtensor.cluster.hccl import Algorithm, Collective, ring_or_nhr
from ms_symtensor.cluster.topology import Cluster, CollectiveRules, GatherOrder, Level, LevelKind, Library

n = symbols.n


@dataclass(frozen=True)
class Regime:
    """A range of message sizes in which one way of working is used.

    It starts at `from_B` bytes. The time is the largest of `branches`, each of the form a + b·n.
    """

    algorithm: str
    from_B: sympy.Expr
    branches: tuple[sympy.Expr, ...]

    @property
    def expression(self) -> sympy.Expr:
        return sympy.Max(*self.branches)


@dataclass(frozen=True)
class Formula:
    """The time in seconds of a collective for groups of a given shape, in symbols; `regimes` by rising size."""

    kind: Collective
    regimes: tuple[Regime, ...]

    @cached_property
    def expression(self) -> sympy.Expr:
        """One expression in n, p_<level>, alpha_<level>, B_<level> and gamma."""
        cases = [(self.regimes[-1].expression, sympy.true)]
        for regime, following in zip(self.regimes[-2::-1], self.regimes[:0:-1], strict=True):
            cases.insert(0, (regime.expression, n < following.from_B))
        return sympy.Piecewise(*cases) if len(cases) > 1 else cases[0][0]

    @property
    def algorithm(self) -> str:
        """What is used, for people: `Mesh + NHR, Pipeline for large messages`."""
        first, *later = (regime.algorithm for regime in self.regimes)
        return first + "".join(f", {name} for large messages" for name in later)


@dataclass(frozen=True)
class _Stage:
    """A level on which the group has more than one member."""

    kind: LevelKind
    algorithm: Algorithm
    p: sympy.Expr
    alpha: sympy.Expr
    B: sympy.Expr


def formula(cluster: Cluster, kind: Collective, sizes: tuple[int, ...]) -> Formula:
    """The formula for groups with `sizes` members per level (`group_sizes`); what HCCL would choose is in it."""
    exchange = kind in (Collective.SEND, Collective.RECEIVE)
    active = tuple(
        (level.name, level.kind, None if exchange else algorithm_of(level, kind, size))
        for level, size in zip(cluster.levels, sizes, strict=True)
        if size > 1
    )
    return _formula(cluster.rules, kind, active)


def algorithm_of(level: Level, kind: Collective, size: int) -> Algorithm:
    """What HCCL uses among `size` members of a level."""
    match level.kind:
        case LevelKind.MESH:
            return Algorithm.MESH
        case LevelKind.RING:
            return Algorithm.RING
        case LevelKind.SWITCH:
            return Algorithm.PAIRWISE if kind is Collective.ALL_TO_ALL else ring_or_nhr(size)


@lru_cache(maxsize=1024)
def _formula(
    rules: CollectiveRules, kind: Collective, active: tuple[tuple[str, LevelKind, Algorithm | None], ...]
) -> Formula:
    if not active:
        return Formula(kind, (Regime("nothing", sympy.Integer(0), (sympy.Integer(0),)),))
    if kind in (Collective.SEND, Collective.RECEIVE):
        # The outermost level that the two ranks do not share carries the data.
        name = active[-1][0]
        time = hccl.send(n, symbols.latency(name), symbols.bandwidth(name))
        return Formula(kind, (Regime("point to point", sympy.Integer(0), (time,)),))
    if rules.library is Library.NCCL:
        return _nccl(kind, tuple(name for name, _, _ in active))
    stages = tuple(
        _Stage(level_kind, algorithm, symbols.group_size(name), symbols.latency(name), symbols.bandwidth(name))
        for name, level_kind, algorithm in active
        if algorithm is not None
    )
    name = " + ".join(stage.algorithm.value for stage in stages)
    regimes = [Regime(name, sympy.Integer(0), (_serial(kind, n, stages, rules.gather_order),))]
    start = _pipeline_start(rules, kind, stages)
    if start is not None:
        regimes.append(Regime("Pipeline", start, _pipeline(kind, stages)))
    return Formula(kind, tuple(regimes))


def _nccl(kind: Collective, levels: tuple[str, ...]) -> Formula:
    if kind is Collective.ALL_TO_ALL:
        ways = [(nccl.all_to_all(levels), sympy.Integer(0))]
    else:
        ways = [(nccl.ring(kind, levels), sympy.Integer(0))]
        if kind is Collective.ALL_REDUCE:
            tree = nccl.tree(levels)
            ways = [(tree, sympy.Integer(0)), (ways[0][0], nccl.tree_until(ways[0][0], tree))]
    return Formula(kind, tuple(Regime(way.name, start, way.branches) for way, start in ways))


def _serial(kind: Collective, size: sympy.Expr, stages: tuple[_Stage, ...], order: GatherOrder) -> sympy.Expr:
    """One level after the other, for a tensor of `size` bytes."""
    match kind:
        case Collective.ALL_GATHER:
            return sum(hccl.all_gather(s.algorithm, part, s.p, s.alpha, s.B) for s, part in _parts(size, stages, order))
        case Collective.REDUCE_SCATTER:
            return sum(
                hccl.reduce_scatter(s.algorithm, part, s.p, s.alpha, s.B, symbols.gamma)
                for s, part in _parts(size, stages, order)
            )
        case Collective.ALL_TO_ALL:
            return sum(hccl.all_to_all(s.algorithm, size, s.p, s.alpha, s.B) for s in stages)
        case Collective.ALL_REDUCE:
            s, *outer = stages
            if not outer:
                return hccl.all_reduce(s.algorithm, size, s.p, s.alpha, s.B, symbols.gamma)
            inside = hccl.reduce_scatter(s.algorithm, size, s.p, s.alpha, s.B, symbols.gamma)
            inside += hccl.all_gather(s.algorithm, size, s.p, s.alpha, s.B)
            return inside + _serial(kind, size / s.p, tuple(outer), order)
        case _:
            s, *outer = stages
            if not outer:
                return hccl.broadcast(s.algorithm, size, s.p, s.alpha, s.B)
            inside = hccl.scatter(s.algorithm, size, s.p, s.alpha, s.B)
            inside += hccl.all_gather(s.algorithm, size, s.p, s.alpha, s.B)
            return inside + _serial(kind, size / s.p, tuple(outer), order)


def _parts(size: sympy.Expr, stages: tuple[_Stage, ...], order: GatherOrder) -> list[tuple[_Stage, sympy.Expr]]:
    """Each stage with the bytes of its own output (AllGather) or input (ReduceScatter)."""
    product = sympy.Mul(*(s.p for s in stages))
    parts = []
    for index, stage in enumerate(stages):
        if order is GatherOrder.INTRA_FIRST:
            gathered = sympy.Mul(*(s.p for s in stages[: index + 1]))
            parts.append((stage, size * gathered / product))
        else:
            parts.append((stage, size / sympy.Mul(*(s.p for s in stages[:index]))))
    return parts


def _pipeline_start(rules: CollectiveRules, kind: Collective, stages: tuple[_Stage, ...]) -> sympy.Expr | None:
    """From how many bytes on HCCL overlaps the two levels; None where it does not."""
    if len(stages) != 2 or stages[0].kind is not LevelKind.MESH:
        return None
    match kind:
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER:
            least = rules.pipeline_min_slice_B
        case Collective.ALL_REDUCE:
            least = rules.pipeline_all_reduce_min_slice_B
        case _:
            least = None
    return None if least is None else int(least) * stages[0].p * stages[1].p


def _pipeline(kind: Collective, stages: tuple[_Stage, ...]) -> tuple[sympy.Expr, ...]:
    """Both levels at once, in p_outer steps on the share n/p of one rank:

        (p_outer - 1) · max(alpha_outer + n/(p·B_outer), alpha_inner + n/(p·B_inner)) + alpha_inner + n/(p·B_inner)

    for AllGather and ReduceScatter (plus its additions), twice that for AllReduce.
    """
    inner, outer = stages
    share = n / (inner.p * outer.p)
    inner_step = inner.alpha + share / inner.B
    added = (inner.p * outer.p - 1) * share * symbols.gamma
    branches = []
    for step in (outer.alpha + share / outer.B, inner_step):
        gather = (outer.p - 1) * step + inner_step
        branches.append(
            {
                Collective.ALL_GATHER: gather,
                Collective.REDUCE_SCATTER: gather + added,
                Collective.ALL_REDUCE: 2 * gather + added,
            }[kind]
        )
    return tuple(branches)
