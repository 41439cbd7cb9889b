"""The forward half of a rank's program: every operator on its slices, every redistribution and partial sum between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy, PartialSum, Placement, place
from ms_symtensor.ops.signature import Signature
from ms_symtensor.program.borders import NO_BORDERS, Borders, Received
from ms_symtensor.program.builder import Builder
from ms_symtensor.program.inner import write_inside
from ms_symtensor.program.meanings import Meanings, default_strategy
from ms_symtensor.program.program import ParameterPlacement, Role
from ms_symtensor.program.reading import Reading, Weight
from ms_symtensor.program.recomputation import RecomputedWork
from ms_symtensor.program.scratch import LOOKED_UP
from ms_symtensor.program.settings import OptimizerLevel, StagePlan
from ms_symtensor.program.weights import place_parameters, root_of
from ms_symtensor.tensor.dtype import has_gradients
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, ParameterRef, Source, TensorType
from ms_symtensor.tensor.layout import Layout
from ms_symtensor.tensor.redistribution import SCATTERED, redistribute


class Value(NamedTuple):
    """A tensor of the graph on this rank: its local tensor, its layout, whether a gradient flows back through it.

    `maker` is the operator that laid it out so; `behind` how its input lies, seen through all Reshapes, if that is one.
    """

    tensor: int
    layout: Layout
    needs_gradient: bool
    maker: Op | None = None
    behind: Layout | None = None


CARRIED = {"bool": "int32"}
"""The element types in which MindSpore carries others from layout to layout where it reshapes them."""


@dataclass
class Forward:
    """What the forward half leaves for the backward half: which node of which operator, which tensor came from where."""

    builder: Builder
    signatures: dict[str, Signature]
    placements: dict[str, Placement]
    parameters: dict[str, ParameterPlacement] = field(default_factory=dict)
    weights: dict[int, Weight] = field(default_factory=dict)
    needs_gradient: set[int] = field(default_factory=set)
    loss: int = -1
    custom: frozenset[str] = frozenset()
    """Operators in cells with a backward pass of their own."""


def forward(graph: Graph, plan: StagePlan, known: Meanings, borders: Borders = NO_BORDERS) -> Forward:
    """Write the forward program of `graph`, whose operators mean what `known` says, under `plan`.

    Errors: InvalidStrategyError naming the operator that MindSpore would reject.
    """
    return _Writer(graph, plan, known, borders).write()


class _Writer:
    def __init__(self, graph: Graph, plan: StagePlan, known: Meanings, borders: Borders) -> None:
        self.graph, self.plan, self.settings, self.borders = graph, plan, plan.settings, borders
        self.known = known
        self.out = Forward(
            Builder(),
            {name: sig for name, (_, sig) in known.items()},
            self._placements(),
            custom=graph.custom_backward,
        )
        self.values: dict[Source, Value] = {}
        self.scalars: dict[tuple[tuple[float, ...], str], int] = {}
        self.recomputation = RecomputedWork(graph, self.settings, borders.results)
        self.reading = Reading(graph, self.out.builder, self.out.parameters, self.recomputation, borders)
        self.out.weights = self.reading.weights

    def _placements(self) -> dict[str, Placement]:
        placed: dict[tuple[int, OpStrategy], Placement] = {}
        found = {}
        for op in self.graph.ops:
            seen, sig = self.known[op.name]
            if sig.shardable:
                strategy = self._strategy(op.name)
                key = id(sig), strategy  # operators of equal blocks share their signature
                if key not in placed:
                    placed[key] = place(seen, sig, strategy, self.settings.device_num)
                found[op.name] = placed[key]
        return found

    def _strategy(self, name: str) -> OpStrategy:
        given = self.plan.strategies.get(name)
        return given if given is not None else default_strategy(*self.known[name], self.settings.device_num)

    def write(self) -> Forward:
        several = {*self.borders.parameters_received, *self.borders.parameters_sent} - self.borders.gathered
        self.out.parameters |= place_parameters(
            self.graph, self.out.signatures, self.out.placements, self.settings, several
        )
        self._require_sums()
        for name, owner in self.borders.parameters_received.items():
            self.out.parameters[name] = replace(self.out.parameters[name], mirror=None, owner=owner)
        whole = (self.settings.device_num,)
        for name, kind in self.graph.inputs:
            if name in self.borders.received:
                self._receive(name, kind, self.borders.received[name])
                continue
            layout = Layout(whole, (-1,) * len(kind.shape), kind.shape)
            self.values[InputRef(name)] = Value(self.out.builder.tensor(kind, kept=True), layout, False)
            self.out.builder.given.add(self.values[InputRef(name)].tensor)
        is_given = self.graph.is_trained or self.borders is not NO_BORDERS
        last = "" if is_given else self._before_casts(self.graph.output)
        for op in self.graph.ops:
            if op.reshapes:
                self._reshape(op)
            elif op.body is not None:
                self._written_by_hand(op)
            elif not self.out.signatures[op.name].shardable:
                self._transparent(op)
            else:
                self._operator(op)
            if op.name == last:
                self._bring_together(op)
        if self.graph.output in self.values:
            self.out.loss = self.values[self.graph.output].tensor
        for source, receiver in self.borders.sent:
            self.out.builder.send(self.values[source].tensor, receiver, source.op)
        return self.out

    def _require_sums(self) -> None:
        """InvalidStrategyError for a weight of two stages whose gradient's shares would have to add up."""
        borders, level = self.borders, self.settings.optimizer_level
        for name in borders.gathered & {*borders.parameters_received, *borders.parameters_sent}:
            if level is OptimizerLevel.LEVEL2 and self.out.parameters[name].shard > 1:
                raise InvalidStrategyError(
                    f"MindSpore does not add up gradients at level2 (gradient_accumulation_shard) of {name}, which several stages"
                    " read in a network of @lazy_inline: use level1"
                )

    def _before_casts(self, source: Source) -> str:
        """The operator whose result a network that does not train returns, Casts behind it left out."""
        while isinstance(source, OpOutput) and self.graph.op_by_name[source.op].type == "Cast":
            source = self.graph.tensor_inputs(self.graph.op_by_name[source.op])[0]
        return source.op if isinstance(source, OpOutput) else ""

    def _bring_together(self, op: Op) -> None:
        """MindSpore gathers what such a network returns, of which every rank has all."""
        source = OpOutput(op.name)
        value, kind = self.values[source], op.outputs[0]
        whole = Layout((self.settings.device_num,), (-1,) * len(kind.shape), kind.shape)
        self.values[source] = value._replace(tensor=self._move(op, value, whole, kind.dtype), layout=whole)

    # -- borders -----------------------------------------------------------------------------------------------------

    def _receive(self, name: str, kind: TensorType, received: Received) -> None:
        local = TensorType(received.layout.slice_shape, kind.dtype)
        (tensor,) = self.out.builder.node("Receive", (), (local,), op=name, role=Role.BORDER, peer=received.sender)
        self._define(InputRef(name), Value(tensor, received.layout, received.needs_gradient))

    # -- where things lie --------------------------------------------------------------------------------------------

    def _root(self, source: Source) -> Source:
        return root_of(self.graph, self.out.signatures, source)

    def _next_layout(self, source: Source) -> Layout | None:
        """The layout that the operators downstream want, looking through transparent ones.

        Of several users MindSpore asks the one that its graph manager lists first (`tensor/users.py`).
        """
        wanted = {layout for layout in self._wanted(self.graph.users.get(source, ())) if layout is not None}
        if len(wanted) < 2:
            return next(iter(wanted), None)
        return next(layout for layout in self._wanted(self.graph.listed_users(source)) if layout is not None)

    def _wanted(self, users: Sequence[tuple[Op, int]]) -> Iterator[Layout | None]:
        """The layouts in which `users` want what they read; None where it does not matter."""
        for user, position in users:
            if user.type == "Reshape":
                yield None
            elif user.name in self.out.placements:
                yield self.out.placements[user.name].inputs[position]
            else:
                yield self._next_layout(OpOutput(user.name))

    # -- operators ---------------------------------------------------------------------------------------------------

    def _operator(self, op: Op) -> None:
        placement, sig = self.out.placements[op.name], self.out.signatures[op.name]
        inputs, needs = [], False
        for position, (source, layout) in enumerate(zip(self.graph.tensor_inputs(op), placement.inputs, strict=True)):
            tensor, grad = self._input(op, position, source, layout)
            inputs.append(tensor)
            differentiable = sig.differentiable is None or position in sig.differentiable
            needs = needs or (grad and differentiable)
        builder = self.out.builder
        types = tuple(
            TensorType(lay.slice_shape, t.dtype) for lay, t in zip(placement.computed, op.outputs, strict=False)
        )
        outputs = list(
            builder.node(
                op.type, tuple(inputs), types, op=op.name, block=op.block, recomputation=self.recomputation.work(op)
            )
        )
        partial = placement.partial
        combined = -1 if partial is None else partial.output
        made = outputs[combined] if partial is not None else -1
        if partial is not None and op.type in LOOKED_UP:
            builder.scratch(types[combined], ())
        if partial is not None:
            outputs[combined] = self._combine(op, placement, partial, made)
        for index, (tensor, layout) in enumerate(zip(outputs, placement.outputs, strict=True)):
            grad = needs and has_gradients(op.outputs[index].dtype) and not op.attribute("stop_gradient", False)
            self._define(op.results[index], Value(tensor, layout, grad, op))
            if grad and index == combined:
                self.out.needs_gradient.add(made)

    def _written_by_hand(self, op: Op) -> None:
        """An operator whose function on slices the user wrote: its body takes its place."""
        placement, sources = self.out.placements[op.name], self.graph.tensor_inputs(op)
        inputs = [self._input(op, p, s, lay) for p, (s, lay) in enumerate(zip(sources, placement.inputs, strict=True))]
        outputs = write_inside(
            self.out.builder, op, self.out.signatures, self.out.needs_gradient, inputs, self.settings.device_num,
            self.recomputation.work(op), self.recomputation.communication(op),
        )  # fmt: skip
        if len(outputs) != len(placement.outputs):
            raise InvalidStrategyError(
                f"{op.name} returns {len(outputs)} tensors, but has {len(placement.outputs)} layouts"
            )
        for index, ((tensor, grad), layout) in enumerate(zip(outputs, placement.outputs, strict=True)):
            made = self.out.builder.tensors[tensor].shape
            if made != layout.slice_shape:
                raise InvalidStrategyError(
                    f"{op.name}: its function returns {list(made)} on a device as output {index}, but the out_strategy says"
                    f" {list(layout.slice_shape)}"
                )
            self._define(op.results[index], Value(tensor, layout, grad, op))

    def _combine(self, op: Op, placement: Placement, partial: PartialSum, tensor: int) -> int:
        kind = TensorType(placement.outputs[partial.output].slice_shape, op.outputs[partial.output].dtype)
        (combined,) = self.out.builder.node(
            "AllReduce" if partial.dim is None else "ReduceScatter",
            (tensor,), (kind,), op=op.name, role=Role.COMBINE, group=partial.group, block=op.block,
            recomputation=self.recomputation.communication(op),
        )  # fmt: skip
        return combined

    def _transparent(self, op: Op) -> None:
        """An operator that keeps its input's layout. On a parameter it is written where the parameter is used."""
        source = self.graph.tensor_inputs(op)[0]
        if isinstance(self._root(source), ParameterRef | Constant):
            return
        value = self.values[source]
        if op.type == "Reshape":  # an idle one
            self.values[OpOutput(op.name)] = value
            return
        kind = TensorType(value.layout.slice_shape, op.outputs[0].dtype)
        (tensor,) = self.out.builder.node(
            op.type, (value.tensor,), (kind,), op=op.name, block=op.block, recomputation=self.recomputation.work(op)
        )
        grad = (
            value.needs_gradient and has_gradients(kind.dtype) and self.out.signatures[op.name].differentiable is None
        )
        self._define(OpOutput(op.name), value._replace(tensor=tensor, needs_gradient=grad))

    def _reshape(self, op: Op) -> None:
        """Reshape takes its input as it lies and delivers what the next operator wants; MindSpore redistributes between.

        What another Reshape has delivered is first brought back to where that had it from.
        """
        source, shape = self.graph.tensor_inputs(op)[0], op.outputs[0].shape
        root = self._root(source)
        if isinstance(root, Constant):
            return
        if isinstance(root, ParameterRef):
            tensor, grad = self._weight(op, 0, source, root)
            value = Value(tensor, self.out.parameters[root.name].layout, grad, op)
        else:
            value = self.values[source]
        target = self._next_layout(OpOutput(op.name))
        if target is None:
            whole = self.settings.device_num
            target = Layout((whole,), (-1,) * len(shape), shape)
        behind, dtype = value.behind or value.layout, op.outputs[0].dtype
        carried = CARRIED.get(dtype, dtype)
        value = self._carried_as(op, value, carried)
        for layout in (behind, target):
            value = value._replace(tensor=self._move(op, value, layout, carried), layout=layout)
        if self.out.builder.tensors[value.tensor].shape != target.slice_shape:
            kind = TensorType(target.slice_shape, carried)
            (tensor,) = self.out.builder.node(
                "Reshape", (value.tensor,), (kind,), op=op.name, role=Role.MOVE, block=op.block, once=True,
                recomputation=self.recomputation.move(op, value.maker),
            )  # fmt: skip
            value = value._replace(tensor=tensor)
        value = self._carried_as(op, value, dtype)
        self._define(OpOutput(op.name), value._replace(maker=op, behind=behind))

    def _carried_as(self, op: Op, value: Value, dtype: str) -> Value:
        kind = self.out.builder.tensors[value.tensor]
        if kind.dtype == dtype:
            return value
        (tensor,) = self.out.builder.node(
            "Cast", (value.tensor,), (replace(kind, dtype=dtype),),
            op=op.name, role=Role.MOVE, block=op.block, recomputation=self.recomputation.move(op, value.maker),
        )  # fmt: skip
        return value._replace(tensor=tensor)

    def _define(self, source: Source, value: Value) -> None:
        self.values[source] = value
        if value.needs_gradient:
            self.out.needs_gradient.add(value.tensor)

    # -- inputs ------------------------------------------------------------------------------------------------------

    def _input(self, op: Op, position: int, source: Source, layout: Layout) -> tuple[int, bool]:
        """The local tensor that `op` reads for `source` in `layout`, and whether a gradient flows back through it."""
        root = self._root(source)
        if isinstance(root, ParameterRef):
            return self._weight(op, position, source, root)
        if isinstance(root, Constant):
            kind = self.graph.type_of(source)
            assert kind is not None
            return self._constant(root, TensorType(layout.slice_shape, kind.dtype)), False
        value = self.values[source]
        kind = self.graph.type_of(source)
        assert kind is not None
        return self._move(op, value, layout, kind.dtype), value.needs_gradient

    def _constant(self, constant: Constant, kind: TensorType) -> int:
        """The tensor of `constant`. Equal scalars are one, as they are for MindSpore's common sub-expressions."""
        if kind.shape or constant.elements is None:
            return self.out.builder.tensor(kind, kept=True)
        key = constant.elements, kind.dtype
        if key not in self.scalars:
            self.scalars[key] = self.out.builder.tensor(kind, kept=True)
        return self.scalars[key]

    def _move(self, op: Op, value: Value, target: Layout, dtype: str) -> int:
        tensor = value.tensor
        for step in redistribute(value.layout, target, self.settings.enable_alltoall):
            if step.kind == "AllGather" and dtype not in SCATTERED:
                raise InvalidStrategyError(
                    f"{op.name} would gather slices of {dtype}, which MindSpore's ReduceScatter, the gradient of that, does"
                    " not take: lay it out like what it reads"
                )
            attribute = (step.dim or 0, step.concat_dim or 0, step.pieces)
            (tensor,) = self.out.builder.node(
                step.kind, (tensor,), (TensorType(step.output_shape, dtype),),
                op=op.name, role=Role.MOVE, group=step.group, block=op.block, attribute=attribute,
                recomputation=self.recomputation.move(op, value.maker),
            )  # fmt: skip
            if value.needs_gradient:
                self.out.needs_gradient.add(tensor)
        return tensor

    def _weight(self, op: Op, position: int, source: Source, root: ParameterRef) -> tuple[int, bool]:
        tensor, trains = self.reading.read(op, position, source, root)
        if trains:
            self.out.needs_gradient.add(tensor)
        return tensor, trains
