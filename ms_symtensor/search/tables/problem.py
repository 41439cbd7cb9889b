"""The optimisation problem of one stage, written as tables.

    min over strategies x  T(x) + λ (M(x) - M_max)

    T(x) = Σ_v n_v [ (1 + r ρ_v) F_v(x_v) + B_v(x_v) ] + Σ_p P_p(x) + Σ_t n_t [ (1 + r ρ_t) F_t(x) + B_t(x) ]
    M(x) = Σ_p W_p(x) + Σ_t n_t [ (1 - r) K_t(x) + r R_t(x) ]

over classes of operators v (own work and partial sums, forward F and backward B), parameters p (synchronisation, update,
memory W) and tensors t between operators (moves F and B, bytes alive at the `turn`: K without, R with recomputation).
r is the fraction of the repeated blocks that is recomputed; ρ tells whether something is recomputed there. T is exactly
what `cost.step` charges for the partitioned program, but for gradients that meet after different moves; M is what is alive
at one moment, so that it never exceeds the true peak. Tables hold the costs on every member of a family of meshes (`family`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.ops.placement import strategy_of
from ms_symtensor.ops.routing import routes_tokens
from ms_symtensor.program.gradients import gradient_users
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase, Role
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.folded.folding import Fold, fold
from ms_symtensor.search.folded.places import Places, places
from ms_symtensor.search.tables.elimination import Factor, Minimum, elimination_order
from ms_symtensor.search.tables.parameters import ParameterUse, counted, parameter_uses, tied
from ms_symtensor.search.tables.redistributions import Pairs
from ms_symtensor.search.tables.sharing import Ties, ties
from ms_symtensor.search.tables.tensor_terms import TensorTables, slices_B
from ms_symtensor.search.tables.tensors import Tensor, is_moved, layouts_at, maker_of, place_of, tensors
from ms_symtensor.search.tables.terms import Terms, merged, terms
from ms_symtensor.search.tables.turn import turn
from ms_symtensor.search.tables.variables import Variables, transparent_s
from ms_symtensor.tensor.graph import Graph, Op, OpOutput, TensorType

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Problem:
    """The tables of `graph` on the meshes of a family; parameters are added per setting by `parameter_terms`.

    `graph` has few blocks and may stand for a deeper network. `recomputation`: operators whose work is
    done again where blocks are recomputed, one of every class. `between`: those of `terms` that are of a tensor between
    operators.
    """

    graph: Graph
    known: Variables
    places: Places
    terms: tuple[Terms, ...]
    ties: Ties
    order: tuple[int, ...]
    parameters: tuple[ParameterUse, ...]
    recomputation: frozenset[str]
    between: Mapping[Tensor, tuple[Terms, ...]]

    @cached_property
    def merged(self) -> tuple[Terms, ...]:
        """The terms, one for every scope and place."""
        return merged(self.terms)

    @property
    def device_num(self) -> int:
        """Devices of the mesh (of a family: of its representative)."""
        return self.known.pricer.family.device_num

    @property
    def settings(self) -> Settings:
        """The settings of every plan."""
        swap = self.limits.swaps == (True,)
        return replace(plain_settings(self.graph, self.device_num), swap_optimizer=swap)

    @property
    def selects(self) -> bool:
        """Whether blocks may be recomputed in part: it is not pinned how many are, none is compiled once for all its calls, and
        none has operators that the user wrote in pieces.
        """
        inside = self.blocks
        in_pieces = any(op.body is not None for op in self.graph.ops if op.block in inside)
        return bool(inside) and not (self.limits.names("recompute") or self.graph.is_lazy_inline or in_pieces)

    @property
    def limits(self) -> Limits:
        """What candidates, settings and recomputation may be."""
        return self.known.limits

    def within(self, limits: Limits) -> "Problem":
        """The same within `limits` that allow the same layouts."""
        return replace(self, known=replace(self.known, limits=limits))

    @property
    def blocks(self) -> tuple[str, ...]:
        """The repeated blocks, which may be recomputed."""
        return self.places.blocks

    @cached_property
    def sent(self) -> Mapping[OpOutput, TensorType]:
        """The tensors of the first block that the second one reads: what a stage with several model chunks sends."""
        first, second, *_ = self.blocks
        return {
            source: kind
            for op in self.graph.ops
            if op.block == second
            for source in self.graph.tensor_inputs(op)
            if isinstance(source, OpOutput) and self.graph.op_by_name[source.op].block == first
            if (kind := self.graph.type_of(source)) is not None
        }

    @cached_property
    def sent_B(self) -> Array:
        """Bytes of these, none of them cut, [members]."""
        grown = self.known.pricer.family.grown
        sizes = (n.size_B * grown(self.known.power_of(source)) for source, n in self.sent.items())
        found: Array = sum(sizes, start=0.0 * grown(0))  # blocks side by side send nothing
        return found

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(v.strategies) for v in self.known.items)

    def least(self, tables: Sequence[Factor]) -> Minimum:
        """The candidates for which the sum of `tables` is least."""
        found = self.ties.minimise((*self.sizes, *self.known.grid_nums), tables, self.order)
        return replace(found, assignment=found.assignment[:, : len(self.known.items)])

    def on_one_grid(self, which: Numbers) -> list[Factor]:
        """Tables of the members `which` that are infinite where operators have no grid together, over these and
        the grid.
        """
        last = len(self.known.items)
        apart = {number: np.where(alike, 0.0, np.inf) for number, alike in self.known.together.items()}
        return [Factor((number, last), table[which]) for number, table in apart.items()]

    @property
    def candidates(self) -> int:
        """How many operator strategies are priced, over all classes."""
        return sum(self.sizes)


def plain_settings(graph: Graph, device_num: int) -> Settings:
    """The settings that all plans for `graph` on so many devices start from.

    MindSpore may exchange tensors by AlltoAll (its default, AllGather and Split, sends as many times more as there are ranks)
    where tokens go to experts; and where the samples do not go round, so that sequences or
    weights are cut. Tokens outside attention and heads inside (Ulysses) are two layouts like others then.
    """
    return Settings(device_num, enable_alltoall=routes_tokens(graph) or sample_num(graph) % device_num != 0)


def sample_num(graph: Graph) -> int:
    """The samples of a step: the first dim of the first input; 0 where there is none."""
    shape = graph.inputs[0][1].shape if graph.inputs else ()
    return shape[0] if shape else 0


def problem_of(graph: Graph, known: Variables, recomputation: frozenset[str] | None = None) -> Problem:
    """Write down the problem of `graph`, whose variables are `known`; `recomputation`: as of the same network elsewhere, where it
    is known.
    """
    folded, pricer = fold(graph), known.pricer
    where = places(graph, folded)
    recomputation = _recomputed_ops(graph, known, where.blocks) if recomputation is None else recomputation
    repeated = frozenset(known.index[name] for name in recomputation if name in known.index)
    own = (_own_terms(known, number, repeated, where) for number in range(len(known.items)))
    found = list(chain.from_iterable(own))
    found += _transparent_terms(graph, known, folded, frozenset(folded.class_of[name] for name in recomputation), where)
    uses = list(parameter_uses(graph, known, where))
    between = tensors(graph, known)
    pairs = Pairs(pricer, plain_settings(graph, pricer.family.device_num).enable_alltoall)
    fullest = turn(graph, known, between, where.blocks, (use.number for _, use in uses))
    tables = TensorTables(known, pairs, repeated, fullest)
    placed = {tensor: where.counts(occurrences) for tensor, occurrences in between.items()}
    of_tensors = {tensor: tuple(tables.terms(tensor, counts)) for tensor, counts in placed.items()}
    found += chain.from_iterable(of_tensors.values())
    found += tables.passing(where.behind)
    found += tied(known, [use for _, use in uses])
    alike = ties(known)
    sizes = (*(len(v.strategies) for v in known.items), *known.grid_nums)
    scopes = [*(t.scope for t in found), *((number, len(known.items)) for number in known.together)]
    order = elimination_order(sizes, [alike.scope(scope) for scope in scopes])
    return Problem(graph, known, where, tuple(found), alike, order, counted(uses), recomputation, of_tensors)


# -- operators -------------------------------------------------------------------------------------------------------------


def _recomputed_ops(graph: Graph, known: Variables, blocks: Sequence[str]) -> frozenset[str]:
    """The operators whose work is done again in a recomputed block, casts included.

    Read off a program for one device.
    """
    if not blocks:
        return frozenset()
    strategies = {op.name: strategy_of(known.signatures[op.name], {}) for op in graph.ops if op.name in known.index}
    settings = Settings(1, recompute=dict.fromkeys(blocks, Recompute()))
    program = partition(graph, StagePlan(strategies, settings), known=known.meanings)
    return frozenset(n.op for n in program.nodes if n.phase is Phase.RECOMPUTE and n.role is Role.WORK)


def _own_terms(known: Variables, number: int, recomputation: frozenset[int], where: Places) -> Iterator[Terms]:
    v = known.items[number]
    repeated = np.where(np.isinf(v.forward_s), 0.0, v.forward_s) if number in recomputation else None
    for members, backward_s in v.backward_s:
        counts = where.counts(dict.fromkeys(members, 1))
        yield terms((number,), counts, v.forward_s.shape, each_s=v.forward_s + backward_s, recompute_s=repeated)


def _transparent_terms(
    graph: Graph, known: Variables, folded: Fold, recomputation: frozenset[int], where: Places
) -> list[Terms]:
    """Casts of activations, in the layout of the tensor they cast; and the additions where gradients of several users meet."""
    pricer = known.pricer
    casts: dict[tuple, Counter[Op | None]] = {}
    for op in graph.ops:
        if op.name in known.index or op.type in ("Reshape", "StopGradient"):
            continue
        source = graph.tensor_inputs(op)[0]
        end = maker_of(graph, known, source)
        kind = graph.type_of(source)
        if end is not None and end[0] >= 0 and kind is not None:
            trains, repeats = OpOutput(op.name) in known.gradients, folded.class_of[op.name] in recomputation
            key = (end, kind.shape, kind.dtype, op.outputs[0].dtype, trains, repeats, known.power_of(source))
            casts.setdefault(key, Counter())[op] += 1
    found = []
    for (end, shape, source_type, target_type, trains, repeats, power), occurrences in casts.items():
        layouts = layouts_at(known, end, shape)
        one = transparent_s(pricer, layouts, source_type, target_type, power)
        each_s, recompute_s = one + one if trains else one, one if repeats else None
        found.append(terms((end[0],), where.counts(occurrences), one.shape, each_s=each_s, recompute_s=recompute_s))
    for source in (source for op in graph.ops for source in op.results):
        if source not in known.gradients or is_moved(graph, known, source):
            continue  # of a tensor that is moved to its readers, the moves' table knows where gradients meet
        users = gradient_users(graph, known.signatures, known.gradients, source)
        if users < 2:
            continue
        end = maker_of(graph, known, source)
        kind = graph.type_of(source)
        if end is None or end[0] < 0 or kind is None:
            continue
        power = known.power_of(source)
        bytes_ = slices_B(known, layouts_at(known, end, kind.shape), kind.dtype, power)
        counts = where.counts({place_of(graph, source, [user for user, _ in graph.users[source]]): 1})
        add = pricer.local_s("AddN", (users + 1) * bytes_)
        found.append(terms((end[0],), counts, bytes_.shape, each_s=add))
    return found
