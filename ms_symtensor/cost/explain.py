"""What a plan costs and why: for every operator the formulas that `cost.step` evaluates, with their numbers beside them.

A term is one summand of a step's time or memory: an expression over dims N_d, cut degrees c_d and the cluster's symbols, the
numbers to put in, and what comes out. Summed by part over all operators, the times are those of `cost.step.price`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ms_symtensor.algebra import symbols as s
from ms_symtensor.cluster.collective_time import group_formula
from ms_symtensor.cluster.topology import Cluster, group_sizes
from ms_symtensor.cost.inner import work_inside
from ms_symtensor.cost.kernel import pass_s
from ms_symtensor.cost.move import VIEWS, priced_as
from ms_symtensor.cost.step import HCCL_BUFFER_B, StepCost, price
from ms_symtensor.cost.terms import PARTS, KnownBytes, PlacedOperator, Term, z
from ms_symtensor.ops.placement import Placement, cuts_of, place
from ms_symtensor.ops.signature import Dims, FixedLayouts, OpView, Signature
from ms_symtensor.program.inner import inner_name
from ms_symtensor.program.meanings import Meanings, default_strategy, meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import COLLECTIVES, Node, Phase, Program, Role
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.graph import Graph, Op, OpOutput, ParameterRef, TensorType
from ms_symtensor.tensor.layout import Layout


@dataclass(frozen=True)
class OperatorExplanation:
    """One operator under a plan, or several alike (`names`): signature, dims, cuts, and all that it costs on one rank."""

    names: tuple[str, ...]
    type: str
    signature: str
    sizes: tuple[tuple[str, int], ...]
    cuts: tuple[tuple[str, int], ...]
    terms: tuple[Term, ...]

    def total(self, part: str) -> float:
        """Sum of the terms of `part` of one of these operators."""
        return sum(t.count * t.value for t in self.terms if t.part == part)


@dataclass(frozen=True)
class StepExplanation:
    """A whole step: its operators, equal ones once, the price, and the buffers of its communicators."""

    operators: tuple[OperatorExplanation, ...]
    cost: StepCost
    buffers: Term

    def total(self, part: str) -> float:
        """Sum of the terms of `part` over all operators."""
        return sum(len(o.names) * o.total(part) for o in self.operators)


def explain_step(graph: Graph, plan: StagePlan, cluster: Cluster) -> StepExplanation:
    """The explanation of one training step of `graph` under `plan` on `cluster`.

    Errors: UnknownOperatorError, InvalidStrategyError (naming the operator).
    """
    known = meanings(graph)
    program = partition(graph, plan, known=known)
    context = _Context(graph, plan, cluster, program, known)
    alike: dict[tuple, list[Op]] = {}
    for op in graph.ops:
        alike.setdefault(context.form(op), []).append(op)
    found = tuple(context.explanation(tuple(ops)) for ops in alike.values())
    groups = {n.group.ranks() for n in program.nodes if n.group is not None and n.kind in COLLECTIVES}
    buffer = s.symbol("M_buffer", "B", "send and receive buffer of one communicator", r"M_\mathrm{buffer}")
    buffers = Term(
        "buffers", f"{len(groups)} communicators", "B", len(groups) * buffer, ((buffer, float(HCCL_BUFFER_B)),)
    )
    cost = price(graph, plan, program, cluster, known)
    return StepExplanation(tuple(o for o in found if o.terms), cost, buffers)


@dataclass(frozen=True)
class _Context:
    graph: Graph
    plan: StagePlan
    cluster: Cluster
    program: Program
    known: Meanings

    # -- what belongs to whom --------------------------------------------------------------------------------------------

    @cached_property
    def first_reader(self) -> dict[str, tuple[str, int]]:
        """The operator, and its input, that reads a parameter first: there its costs are counted."""
        found: dict[str, tuple[str, int]] = {}
        for op in self.graph.ops:
            if not self.known[op.name][1].shardable:
                continue
            for position, source in enumerate(self.graph.tensor_inputs(op)):
                while isinstance(source, OpOutput) and not self.known[source.op][1].shardable:
                    source = self.graph.tensor_inputs(self.graph.op_by_name[source.op])[0]
                if isinstance(source, ParameterRef):
                    found.setdefault(source.name, (op.name, position))
        return found

    @cached_property
    def nodes(self) -> dict[str, list[Node]]:
        """The nodes of the program by the operator that causes them."""
        found: dict[str, list[Node]] = {}
        outer = {inner_name(op, i): op.name for op in self.graph.ops if op.body is not None for i in op.body.ops}
        for node in self.program.nodes:
            owner = node.op if node.parameter is None else self.first_reader[node.parameter][0]
            found.setdefault(outer.get(owner, owner), []).append(node)
        return found

    @cached_property
    def kept_by(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """The tensors that operators keep, as ("in" or "out", position); one that several keep counts at the first of them."""
        made = {t: n for n in self.program.nodes if n.phase is Phase.FORWARD for t in n.outputs}

        def root(tensor: int) -> int:
            node = made.get(tensor)
            return root(node.inputs[0]) if node is not None and node.kind in VIEWS else tensor

        seen: set[int] = set()
        found: dict[str, list[tuple[str, int]]] = {}
        behind: dict[str, set[int]] = {}
        for node in self.program.nodes:
            if node.phase is not Phase.FORWARD and node.role is Role.WORK:
                behind.setdefault(node.op, set()).update(node.inputs)
        for op in self.graph.ops:
            work = self.work_of(op.name)
            for side, tensors in (("in", work.inputs), ("out", work.outputs)) if work else ():
                for position, tensor in enumerate(tensors):
                    owner = root(tensor)
                    if tensor in behind.get(op.name, ()) and owner in made and not {tensor, owner} & self.program.kept:
                        if owner not in seen:
                            found.setdefault(op.name, []).append((side, position))
                        seen.add(owner)
        return {name: tuple(kept) for name, kept in found.items()}

    def work_of(self, name: str) -> Node | None:
        """The forward node of an operator's own work."""
        return next((n for n in _own(self.nodes.get(name, ()), name) if n.phase is Phase.FORWARD), None)

    def parameters_of(self, name: str) -> Iterator[tuple[str, int]]:
        return ((p, position) for p, (reader, position) in self.first_reader.items() if reader == name)

    def form(self, op: Op) -> tuple:
        """What two operators must share to cost the same for the same reasons."""
        seen, _ = self.known[op.name]
        nodes = tuple(
            (
                n.kind,
                n.role,
                n.phase,
                n.group and n.group.ranks(),
                n.attribute,
                self.sizes(n.inputs),
                self.sizes(n.outputs),
            )
            for n in self.nodes.get(op.name, ())
        )
        placed = tuple((self.program.parameters[p], position) for p, position in self.parameters_of(op.name))
        types = (op.type, seen.inputs, seen.outputs, seen.arguments)
        return (*types, self.plan.strategies.get(op.name), nodes, placed, self.kept_by.get(op.name, ()))

    def sizes(self, tensors: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.program.tensors[t].size_B for t in tensors)

    # -- terms -----------------------------------------------------------------------------------------------------------

    def explanation(self, alike: tuple[Op, ...]) -> OperatorExplanation:
        op = alike[0]
        seen, sig = self.known[op.name]
        nodes = self.nodes.get(op.name, [])
        cuts, placement = self._cuts(op, seen, sig)
        if sig.layouts is not None:
            seen = _on_one_device(seen, sig.layouts)
        described = PlacedOperator(seen, sig, cuts, placement, _own(nodes, op.name))
        terms = [*(described.work(self.cluster) if op.body is None else self._work_inside(op, sig, nodes))]
        terms += self._node_terms(described, nodes)
        for parameter, position in self.parameters_of(op.name):
            swapped = self.plan.settings.swap_optimizer
            terms += described.at_rest(self.cluster, self.program.parameters[parameter], position, swapped)
        for side, position in self.kept_by.get(op.name, ()):
            formula = (described.formulas.inputs_B if side == "in" else described.formulas.outputs_B)[position]
            terms.append(
                Term("activations", f"{side}put {position}, kept", "B", formula, described.values(self.cluster))
            )
        return OperatorExplanation(
            tuple(o.name for o in alike), op.type, signature_line(sig), tuple((d, sig.sizes[d]) for d in sig.mesh),
            tuple((d, n) for d, n in cuts.items() if n > 1),
            tuple(sorted((t for t in terms if t.expression != 0), key=lambda t: PARTS.index(t.part))),
        )  # fmt: skip

    def _work_inside(self, op: Op, sig: Signature, nodes: list[Node]) -> Iterator[Term]:
        """What the operators inside `op` do, at the shapes of one device."""
        for name, seen, inner in work_inside(op, sig):
            terms = PlacedOperator(seen, inner, {}, None, _own(nodes, name)).work(self.cluster)
            yield from (replace(term, label=f"{term.label}, {seen.type} inside") for term in terms)

    def _cuts(self, op: Op, seen: OpView, sig: Signature) -> tuple[dict[str, int], Placement | None]:
        if sig.shardable:
            device_num = self.plan.settings.device_num
            strategy = self.plan.strategies.get(op.name) or default_strategy(seen, sig, device_num)
            return cuts_of(seen, sig, strategy, device_num), place(seen, sig, strategy, device_num)
        work = self.work_of(op.name)
        if work is None:
            return {}, None
        local = self.program.tensors[work.inputs[0]].shape
        whole = seen.inputs[0].shape
        return {d: w // n for d, w, n in zip(sig.inputs[0], whole, local, strict=True) if d is not None}, None

    def _node_terms(self, of: PlacedOperator, nodes: list[Node]) -> list[Term]:
        """Collectives and local moves, equal ones together."""
        found = Counter(self._node_term(of, node, nodes) for node in nodes if node.role is not Role.WORK)
        return [replace(term, count=count) for term, count in found.items()]

    def _node_term(self, of: PlacedOperator, node: Node, nodes: list[Node]) -> Term:
        base = self._base(of, node, nodes)
        inputs, outputs = self.sizes(node.inputs), self.sizes(node.outputs)
        values = of.values(self.cluster, self._shard(node))
        verb = {
            Role.COMBINE: "partial sums",
            Role.MOVE: "redistribution",
            Role.WEIGHT: "weight",
            Role.ADD: "gradients meet",
        }
        label = f"{node.phase.value} {node.kind}, {verb.get(node.role, 'gradient')}"
        if node.group is not None and node.kind in COLLECTIVES:
            ranks = node.group.ranks()
            formula = group_formula(self.cluster, priced_as(node.kind), ranks)
            expression = formula.expression.xreplace({s.n: self._in_bytes(base, node, max(sum(inputs), sum(outputs)))})
            levels = zip(self.cluster.levels, group_sizes(self.cluster, ranks), strict=True)
            members = tuple((s.group_size(level.name), float(size)) for level, size in levels)
            part = "synchronisation" if node.role is Role.SYNC else "communication"
            label += f" over {len(ranks)} ranks ({formula.algorithm})"
            return Term(part, label, "s", expression + s.t_coll, (*values, *members))
        traffic = self._in_bytes(base, node, sum(inputs) + sum(outputs))
        expression = sympy.Integer(0) if node.kind in VIEWS else pass_s(traffic)
        return Term("compute", label, "s", expression, values)

    def _shard(self, node: Node) -> int:
        return 1 if node.parameter is None else self.program.parameters[node.parameter].shard

    def _in_bytes(self, base: KnownBytes, node: Node, bytes_: int) -> sympy.Expr:
        """`bytes_` as a fraction of `base`; what works on a share of a parameter says so by z."""
        shard = self._shard(node)
        share = (
            shard > 1
            and node.kind not in ("AllGather", "ReduceScatter")
            and (node.kind, node.role) != ("Cast", Role.SYNC)
        )
        return base.of(bytes_ * shard) / z if share else base.of(bytes_)

    def _base(self, of: PlacedOperator, node: Node, nodes: list[Node]) -> KnownBytes:
        if node.parameter is not None:
            return of.input(self.first_reader[node.parameter][1])
        if node.role is Role.MOVE:
            position = self._moved_input(node, nodes) if of.signature.shardable else None
            return of.whole_input(0) if position is None else of.input(position)
        partial = of.placement.partial if of.placement is not None and node.role is Role.COMBINE else None
        return of.output(partial.output if partial is not None else 0)

    def _moved_input(self, node: Node, nodes: list[Node]) -> int | None:
        """Which input of its operator a redistribution brings; one of the backward pass undoes one of the forward pass."""
        if node.phase is Phase.BACKWARD:
            shapes = (node.outputs, node.inputs)
            for other in nodes:
                moves = other.role is Role.MOVE and other.phase is Phase.FORWARD and other.group == node.group
                if moves and (self.sizes(other.inputs), self.sizes(other.outputs)) == tuple(map(self.sizes, shapes)):
                    return self._moved_input(other, nodes)
            return None
        reached = set(node.outputs)
        for other in nodes:
            if other.role is Role.MOVE and reached & set(other.inputs):
                reached.update(other.outputs)
            if other.role is Role.WORK and (found := [i for i, t in enumerate(other.inputs) if t in reached]):
                return found[0]
        return None


def _own(nodes: Iterable[Node], name: str) -> tuple[Node, ...]:
    """The nodes that do the work of the operator called `name`."""
    return tuple(node for node in nodes if node.role is Role.WORK and node.op == name)


def _on_one_device(op: OpView, layouts: FixedLayouts) -> OpView:
    """`op` with the slices of its tensors."""

    def slices(given: tuple[Layout, ...], tensors: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return tuple(TensorType(x.slice_shape, t.dtype) for x, t in zip(given, tensors, strict=True))

    return replace(op, inputs=slices(layouts.inputs, op.inputs), outputs=slices(layouts.outputs, op.outputs))


def signature_line(sig: Signature) -> str:
    """`m k, n k -> m n`."""

    def dims(tensors: tuple[Dims, ...]) -> str:
        return ", ".join(" ".join(d or "1" for d in tensor) or "scalar" for tensor in tensors)

    return f"{dims(sig.inputs)} -> {dims(sig.outputs)}"
