"""How parameters reach the operators that read them: held, received or sent on, cast, gathered from the optimizer's shares."""

from collections.abc import Mapping
from dataclasses import dataclass

from ms_symtensor.program.borders import Borders
from ms_symtensor.program.builder import Builder
from ms_symtensor.program.parameters import is_summed
from ms_symtensor.program.program import ParameterPlacement, Role
from ms_symtensor.program.recomputation import RecomputedWork
from ms_symtensor.tensor.graph import Graph, Op, OpOutput, ParameterRef, Source, TensorType


@dataclass(frozen=True)
class Weight:
    """A parameter as an operator of `block` reads it: sliced, cast, gathered; whether its gradient is `summed`."""

    parameter: str
    used: int
    block: str | None
    summed: bool


class Reading:
    """Writes what is done to parameters before operators read them; `weights`: the tensors that these read."""

    def __init__(
        self,
        graph: Graph,
        builder: Builder,
        placements: Mapping[str, ParameterPlacement],
        recomputation: RecomputedWork,
        borders: Borders,
    ) -> None:
        self.weights: dict[int, Weight] = {}
        self._graph, self._builder, self._placements = graph, builder, placements
        self._recomputation, self._borders = recomputation, borders
        self._stored: dict[tuple[ParameterRef, bool], int] = {}
        self._read: dict[tuple[Source, bool], int] = {}

    def read(self, op: Op, position: int, source: Source, root: ParameterRef) -> tuple[int, bool]:
        """The local tensor of parameter `root` that `op` reads as `source`, through the casts between them, and whether a
        gradient flows back to it.
        """
        placement = self._placements[root.name]
        trains = placement.requires_grad and not any(
            self._graph.op_by_name[name].type == "StopGradient" for name in self._casts(source)
        )
        # A gather's gradient sums whatever arrives; without one, uses that are summed and others are kept apart.
        summed = placement.shard > 1 or is_summed(op.type, position)
        known = self._read.get((source, summed))
        if known is not None:
            return known, trains
        if (root, summed) not in self._stored:
            self._stored[root, summed] = self._store(root, placement)
        tensor, casts = self._stored[root, summed], self._casts(source)
        if placement.shared:
            gathered = self._gathered(op, tensor, placement, root.name)
            tensor = self._cast(gathered, casts, root.name)
            if placement.in_shared_block and gathered in self._builder.recomputed:
                self._builder.recomputed.add(tensor)
        else:
            tensor = self._gathered(op, self._cast(tensor, casts, root.name), placement, root.name)
        self.weights[tensor] = Weight(root.name, tensor, op.block, summed)
        self._read[source, summed] = tensor
        return tensor, trains

    def _store(self, root: ParameterRef, placement: ParameterPlacement) -> int:
        """The tensor that holds a parameter on this rank, sent on if other stages read it too."""
        kind = TensorType(placement.slice_shape, placement.dtype)
        stored = self._builder.tensor(kind, kept=True)
        self._builder.held.add(stored)
        if placement.owner is not None:
            return self._builder.node(
                "Receive", (stored,), (kind,), op=root.name, role=Role.BORDER, parameter=root.name, peer=placement.owner,
                once=True,
            )[0]  # fmt: skip
        if (root, True) not in self._stored and (root, False) not in self._stored:
            for receiver in self._borders.parameters_sent.get(root.name, ()):
                self._builder.send(stored, receiver, root.name, root.name)
        return stored

    def _cast(self, tensor: int, casts: list[str], parameter: str) -> int:
        for cast in casts:
            op = self._graph.op_by_name[cast]
            kind = TensorType(self._builder.tensors[tensor].shape, op.outputs[0].dtype)
            (tensor,) = self._builder.node(
                op.type, (tensor,), (kind,), op=cast, role=Role.WEIGHT, parameter=parameter, once=True, block=op.block
            )
        return tensor

    def _gathered(self, op: Op, tensor: int, placement: ParameterPlacement, parameter: str) -> int:
        if placement.shard == 1:
            return tensor
        dtype = self._builder.tensors[tensor].dtype
        recomputation = self._recomputation.gather(op, placement, is_cast=dtype != placement.dtype)
        if recomputation and dtype != placement.dtype:
            self._builder.recomputed.add(tensor)  # the Cast before it goes along
        (tensor,) = self._builder.node(
            "AllGather", (tensor,), (TensorType(placement.layout.slice_shape, dtype),), op=op.name, role=Role.WEIGHT,
            group=placement.gather, parameter=parameter, block=op.block, once=True,
            recomputation=recomputation,
        )  # fmt: skip
        return tensor

    def _casts(self, source: Source) -> list[str]:
        chain: list[str] = []
        while isinstance(source, OpOutput):
            chain.append(source.op)
            source = self._graph.tensor_inputs(self._graph.op_by_name[source.op])[0]
        return chain[::-1]
