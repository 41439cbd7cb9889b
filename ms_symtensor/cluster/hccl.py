"""HCCL's collectives in formulas: the time of one collective at one level, by algorithm (Hockney's alpha-beta model).

    n      bytes of the whole tensor:
             AllReduce       the tensor, which every rank holds before and after
             AllGather       the output
             ReduceScatter   the input
             AlltoAll        the input of one rank
             Broadcast       the tensor
             Send, Receive   the tensor; a Send and its Receive are one transfer
    p      members of the group
    alpha  seconds of a step that moves no bytes
    B      bytes per second, one way, of a link (mesh) or of a rank's port (the others)
    gamma  seconds to add one received byte to a local one; 0 where the copy engine adds while it copies

The arguments may be sympy expressions or numbers. How levels combine is in hierarchy.py, numbers are in
collective_time.py. Source of the formulas: HCCL user guide, introduction of the collective algorithms
(github.com/mirror-cann/hccl, docs/zh/user_guide/coll_algo_intro).
"""

from enum import Enum
from typing import Any

import sympy
from sympy.codegen.cfunctions import log2

Number = Any  # sympy.Expr, int or float


class Collective(str, Enum):
    """The collectives, by the name of MindSpore's operator."""

    ALL_REDUCE = "AllReduce"
    ALL_GATHER = "AllGather"
    REDUCE_SCATTER = "ReduceScatter"
    ALL_TO_ALL = "AlltoAll"
    BROADCAST = "Broadcast"
    SEND = "Send"
    RECEIVE = "Receive"


class Algorithm(str, Enum):
    """How the members of one level exchange data.

    MESH      all p - 1 links of a rank at once
    RING      p - 1 steps round a ring
    NHR       nonuniform hierarchical ring, ⌈log2 p⌉ steps; halving-doubling costs the same where p is a power of two
    PAIRWISE  AlltoAll through a switch, p - 1 steps, one partner at a time
    """

    MESH = "Mesh"
    RING = "Ring"
    NHR = "NHR"
    PAIRWISE = "Pairwise"


def all_reduce(algorithm: Algorithm, n: Number, p: Number, alpha: Number, B: Number, gamma: Number = 0) -> Number:
    """AllReduce = ReduceScatter + AllGather:

    Mesh   2·alpha            + 2·n/(p·B)         + (p-1)/p·n·gamma
    Ring   2·(p-1)·alpha      + 2·(p-1)/p·n/B     + (p-1)/p·n·gamma
    NHR    2·⌈log2 p⌉·alpha   + 2·(p-1)/p·n/B     + (p-1)/p·n·gamma
    """
    return reduce_scatter(algorithm, n, p, alpha, B, gamma) + all_gather(algorithm, n, p, alpha, B)


def all_gather(algorithm: Algorithm, n: Number, p: Number, alpha: Number, B: Number) -> Number:
    """AllGather, every rank starting with n/p bytes:

    Mesh   alpha             + n/(p·B)
    Ring   (p-1)·alpha       + (p-1)/p·n/B
    NHR    ⌈log2 p⌉·alpha    + (p-1)/p·n/B
    """
    return _steps(algorithm, p) * alpha + _fraction(algorithm, p) * n / B


def reduce_scatter(algorithm: Algorithm, n: Number, p: Number, alpha: Number, B: Number, gamma: Number = 0) -> Number:
    """ReduceScatter, every rank ending with n/p bytes: AllGather's steps, and (p-1)/p·n bytes added."""
    return all_gather(algorithm, n, p, alpha, B) + (p - 1) * n * gamma / p


def all_to_all(algorithm: Algorithm, n: Number, p: Number, alpha: Number, B: Number) -> Number:
    """AlltoAll, every rank sending n/p bytes to each other one:

    Mesh       alpha         + n/(p·B)
    Pairwise   (p-1)·alpha   + (p-1)/p·n/B
    Ring       (p-1)·alpha   + (p-1)/2·n/B      a block for the k-th next rank passes k links
    """
    if algorithm is Algorithm.RING:
        return (p - 1) * alpha + (p - 1) * n / (2 * B)
    return _steps(algorithm, p) * alpha + _fraction(algorithm, p) * n / B


def broadcast(algorithm: Algorithm, n: Number, p: Number, alpha: Number, B: Number) -> Number:
    """Broadcast = Scatter + AllGather, so twice the time of an AllGather."""
    return scatter(algorithm, n, p, alpha, B) + all_gather(algorithm, n, p, alpha, B)


def scatter(algorithm: Algorithm, n: Number, p: Number, alpha: Number, B: Number) -> Number:
    """Scatter from one rank, every rank ending with n/p bytes: the time of an AllGather."""
    return all_gather(algorithm, n, p, alpha, B)


def send(n: Number, alpha: Number, B: Number) -> Number:
    """Send and its Receive: alpha + n/B."""
    return alpha + n / B


def ring_or_nhr(p: int) -> Algorithm:
    """HCCL's choice between the members of a switched level: the lower cost, on equal cost Ring before NHR.

    Ring and NHR move the same bytes, so steps decide: (p-1) against ⌈log2 p⌉. Halving-doubling, HCCL's third candidate,
    equals NHR where p is a power of two, costs more elsewhere and loses on equal cost, so it is never taken. (CANN's
    HCCL: coll_alg_operator.cc, SelectAlgoTypeForAllReduce, …AllGather, …ReduceScatter. For Broadcast that file compares
    Ring with halving-doubling only; NHR stands for the latter here, exact where p is a power of two.)
    """
    return Algorithm.NHR if _steps(Algorithm.NHR, sympy.Integer(p)) < p - 1 else Algorithm.RING


def _steps(algorithm: Algorithm, p: Number) -> Number:
    match algorithm:
        case Algorithm.MESH:
            return sympy.Integer(1)
        case Algorithm.NHR:
            return sympy.ceiling(log2(p))
        case Algorithm.RING | Algorithm.PAIRWISE:
            return p - 1


def _fraction(algorithm: Algorithm, p: Number) -> Number:
    """The part of the whole tensor that passes one link or port."""
    return 1 / sympy.sympify(p) if algorithm is Algorithm.MESH else (p - 1) / sympy.sympify(p)
