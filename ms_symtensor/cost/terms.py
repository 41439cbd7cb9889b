"""The summands of a step's time and memory, as expressions with the numbers to put in."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import sympy

from ms_symtensor.algebra import symbols as s
from ms_symtensor.algebra.expression import compile_expression
from ms_symtensor.algebra.named import expanded
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.kernel import copy_s, pass_s
from ms_symtensor.cost.move import VIEWS
from ms_symtensor.cost.operator import OperatorCosts, cut_degree, dim_size, operator_formulas
from ms_symtensor.cost.parameter import STATES_B, swapped_B, update_B
from ms_symtensor.cost.step import MEMORIES, TIMES
from ms_symtensor.ops.placement import Placement
from ms_symtensor.ops.signature import Dims, OpView, Signature
from ms_symtensor.program.program import Node, ParameterPlacement, Phase
from ms_symtensor.tensor.dtype import size_B

z = s.symbol(
    "z", "1", "ranks that share one slice of a parameter (optimizer sharding)", "z", positive=True, integer=True
)

PARTS = ("work", *TIMES, *MEMORIES)
"""What terms are sorted by: operations, then the parts of a step's time and of its memory."""

Values = tuple[tuple[sympy.Symbol, float], ...]


@dataclass(frozen=True)
class Term:
    """`count` equal summands of the step's time (unit "s") or memory ("B"), or a count of operations ("FLOP").

    `part` is one of PARTS; "activations" are those kept for the backward pass. `value` is one summand: `expression` at
    `values`.
    """

    part: str
    label: str
    unit: str
    expression: sympy.Expr
    values: Values
    count: int = 1

    @cached_property
    def value(self) -> float:
        expression = expanded(self.expression)
        needed = [(symbol, number) for symbol, number in self.values if symbol in expression.free_symbols]
        function = compile_expression(expression, [symbol for symbol, _ in needed])
        return float(function(**{symbol.name: number for symbol, number in needed}))


@dataclass(frozen=True)
class KnownBytes:
    """A tensor whose bytes are known in symbols: all others of its operator are written as fractions of it."""

    expression: sympy.Expr
    size_B: int

    def of(self, bytes_: int) -> sympy.Expr:
        return sympy.Rational(bytes_, self.size_B) * self.expression if self.size_B else sympy.Integer(bytes_)


@dataclass(frozen=True)
class PlacedOperator:
    """An operator with its cuts, and the nodes that are its own work; `placement` is None where MindSpore takes no strategy."""

    view: OpView
    signature: Signature
    cuts: Mapping[str, int]
    placement: Placement | None
    nodes: tuple[Node, ...]

    @cached_property
    def products(self) -> int:
        """Gradients that it computes."""
        return sum(len(node.outputs) for node in self.nodes if node.phase is Phase.BACKWARD)

    @cached_property
    def formulas(self) -> OperatorCosts:
        """Its seconds, FLOPs and bytes."""
        return operator_formulas(self.view, self.signature, self.products)

    def values(self, cluster: Cluster, shard: int = 1) -> Values:
        """The numbers of all symbols that may occur."""
        sizes = [(dim_size(d), float(self.signature.sizes[d])) for d in self.signature.mesh]
        cuts = [(cut_degree(d), float(self.cuts.get(d, 1))) for d in self.signature.mesh]
        return (*sizes, *cuts, (z, float(shard)), *sorted(cluster.values.items(), key=lambda pair: pair[0].name))

    def work(self, cluster: Cluster) -> Iterator[Term]:
        """What its kernels take; where MindSpore takes no layout of it, a pass over input and output, as a Cast makes it."""
        values, phases = self.values(cluster), Counter(node.phase for node in self.nodes)
        if not self.signature.shardable:
            traffic = self.formulas.inputs_B[0] + self.formulas.outputs_B[0]
            expression = sympy.Integer(0) if self.view.type in VIEWS else pass_s(traffic)
            yield from (Term("compute", phase.value, "s", expression, values, count) for phase, count in phases.items())
            return
        yield Term("work", "forward", "FLOP", self.formulas.forward_flops, values)
        yield Term("compute", "forward", "s", self.formulas.forward_s, values)
        if phases[Phase.RECOMPUTE]:
            yield Term("compute", "recomputed", "s", self.formulas.forward_s, values, phases[Phase.RECOMPUTE])
        if self.products:
            yield Term("compute", "backward", "s", self.formulas.backward_s, values)

    def at_rest(
        self, cluster: Cluster, placement: ParameterPlacement, position: int, swap_optimizer: bool = False
    ) -> Iterator[Term]:
        """Memory and update of the parameter that is read as input number `position`; `swap_optimizer`: its states are fetched
        from the host and brought back.
        """
        values = self.values(cluster, placement.shard)
        stored = size_B(placement.dtype)
        elements = self.formulas.inputs_B[position] / size_B(self.view.inputs[position].dtype)
        share = elements / z if placement.shard > 1 else elements
        name = f"input {position}"
        yield Term("parameters", name, "B", stored * share, values)
        if not placement.requires_grad:
            return
        yield Term("gradients", name, "B", stored * share, values)
        if swap_optimizer:
            swapped = copy_s(swapped_B(share))
            yield Term("optimizer", f"states of {name}, from the host and back", "s", swapped, values)
        else:
            yield Term("optimizer_states", name, "B", STATES_B * share, values)
        yield Term("optimizer", f"update of {name}", "s", pass_s(update_B(share, stored, stored)), values)

    def input(self, position: int) -> KnownBytes:
        return self._slice(
            self.formulas.inputs_B[position], self.view.inputs[position].size_B, self.signature.inputs[position]
        )

    def output(self, position: int) -> KnownBytes:
        dims = self.signature.outputs[position]
        return self._slice(self.formulas.outputs_B[position], self.view.outputs[position].size_B, dims)

    def whole_input(self, position: int) -> KnownBytes:
        uncut = {cut_degree(d): sympy.Integer(1) for d in self.signature.mesh}
        return KnownBytes(self.formulas.inputs_B[position].xreplace(uncut), self.view.inputs[position].size_B)

    def _slice(self, expression: sympy.Expr, whole_B: int, dims: Dims) -> KnownBytes:
        for dim in dims:
            whole_B //= self.cuts.get(dim, 1) if dim is not None else 1
        return KnownBytes(expression, whole_B)
