"""The backward half of a rank's program: the gradient of what the forward half wrote, collectives included.

MindSpore differentiates the partitioned program, so the gradient of a replicated tensor is a partial sum on every copy:
AllReduce's gradient is AllReduce, AllGather's ReduceScatter, ReduceScatter's AllGather; a slice is padded without
communication, and every parameter's gradient is summed over the copies of its slice at the end.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from ms_symtensor.program.builder import Builder
from ms_symtensor.program.forward import Forward
from ms_symtensor.program.gradients import ADDED, PASSED_ON, passes_on
from ms_symtensor.program.program import Node, ParameterPlacement, Phase, Role
from ms_symtensor.program.reading import Weight
from ms_symtensor.program.scratch import BY_DIVIDEND, LOOKED_UP, masked, scratch
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import TensorType
from ms_symtensor.tensor.layout import DeviceGroup

MOVE_GRADIENT = {
    "AllReduce": "AllReduce", "AllGather": "ReduceScatter", "ReduceScatter": "AllGather", "AlltoAll": "AlltoAll",
    "AlltoAllV": "AlltoAllV",
    "StridedSlice": "StridedSliceGrad", "Split": "Concat", "Concat": "SplitWithSize", "Reshape": "Reshape",
}  # fmt: skip
"""What the gradient of a move is, by its kind (SplitWithSize is Split in MindSpore 2.7)."""


def backward(half: Forward, settings: Settings, in_pipeline: bool = False) -> None:
    """Append the gradient program of `half` to its builder; `in_pipeline`: it is that of one of several micro-batches."""
    _Differentiator(half, settings, in_pipeline).run()


class _Differentiator:
    def __init__(self, half: Forward, settings: Settings, in_pipeline: bool) -> None:
        self.half, self.settings, self.builder = half, settings, half.builder
        self.forward_nodes = tuple(self.builder.nodes)
        self.producer = {t: n for n in self.forward_nodes for t in n.outputs}
        self.in_pipeline = in_pipeline
        self.incoming: dict[int, list[int]] = {}
        self.copies: dict[int, int] = {}

    def run(self) -> None:
        if self.half.loss in self.half.needs_gradient:
            seed = self.builder.tensor(self.builder.tensors[self.half.loss], kept=True)
            self.incoming[self.half.loss] = [seed]
            self.builder.seed = seed
        for node in reversed(self.forward_nodes):
            if node.role is Role.BORDER:
                self._cross_back(node)
            elif node.role is not Role.WEIGHT:
                self._differentiate(node)
        self._synchronise()

    # -- borders of pipeline stages --------------------------------------------------------------------------------------

    def _cross_back(self, node: Node) -> None:
        """What was sent has its gradient received, and the other way round. That of parameters crosses at the end."""
        if node.parameter is not None:
            return
        if node.kind == "Send":
            (tensor,) = node.inputs
            if tensor in self.half.needs_gradient:
                gradient = self._receive_gradient(node, self.builder.tensors[tensor])
                self.incoming.setdefault(tensor, []).append(gradient)
            return
        (tensor,) = node.outputs
        gradient_of_it = self._sum(tensor, node)
        if gradient_of_it is not None:
            self._send_gradient(node, gradient_of_it)

    def _receive_gradient(self, sent: Node, kind: TensorType) -> int:
        return self.builder.node(
            "Receive", (), (kind,), op=sent.op, role=Role.BORDER, phase=Phase.BACKWARD, parameter=sent.parameter,
            peer=sent.peer,
        )[0]  # fmt: skip

    def _send_gradient(self, received: Node, gradient: int) -> None:
        self.builder.node(
            "Send", (gradient,), (), op=received.op, role=Role.BORDER, phase=Phase.BACKWARD, parameter=received.parameter,
            peer=received.peer,
        )  # fmt: skip

    # -- one node ------------------------------------------------------------------------------------------------------

    def _differentiate(self, node: Node) -> None:
        arriving = [self._sum(t, node) for t in node.outputs]
        gradients = tuple(g for g in arriving if g is not None)
        wanted = [t for t in dict.fromkeys(node.inputs) if t in self.half.needs_gradient]
        if not gradients or not wanted:
            return
        if node.role is not Role.WORK:
            self._move_back(node, gradients[0])
            return
        sig = self.half.signatures[node.op]
        if sig.differentiable is not None:
            wanted = [t for t in wanted if any(node.inputs[p] == t for p in sig.differentiable)]
        wanted = self._pass_on(node, wanted, gradients[0])
        kept_in = [node.inputs[p] for p in sig.keeps_inputs]
        reads_none = sig.reads_no_output is not None and wanted == [node.inputs[sig.reads_no_output]]
        kept_out = [] if reads_none else [node.outputs[p] for p in sig.keeps_outputs]
        if node.op not in self.half.custom:
            self._combine_inside(node)
        if sig.bilinear:
            added = node.inputs[ADDED[node.kind]] if len(node.inputs) > ADDED.get(node.kind, len(node.inputs)) else -1
            for tensor in self._in_order(wanted):
                others = [] if tensor == added else [t for t in kept_in if t != tensor] or kept_in[:1]
                self._gradient_of(node, (tensor,), gradients, others)
        elif wanted:
            self._gradient_of(node, tuple(wanted), gradients, kept_in + kept_out)

    def _in_order(self, wanted: list[int]) -> list[int]:
        """Factors in the order of their gradients: of `x * f(x)` that of f(x) comes first, on its way to where both add up."""
        is_from_first = len(wanted) == 2 and self._comes_from(wanted[1], wanted[0])
        return wanted[::-1] if is_from_first else wanted

    def _comes_from(self, tensor: int, source: int) -> bool:
        """Whether `tensor` is made of `source`, maybe by way of others."""
        todo, seen = [tensor], {tensor}
        while todo:
            one = todo.pop()
            if one in self.producer and one > source:  # what is made earlier has a lower number
                new = {*self.producer[one].inputs} - seen
                seen |= new
                todo += new
        return source in seen

    def _combine_inside(self, node: Node) -> None:
        """A statistic that the forward pass combines for the other outputs (a norm's, cut along it) has a gradient too."""
        placement = self.half.placements.get(node.op)
        partial = placement.partial if placement is not None else None
        if partial is None or partial.output == 0:
            return
        statistic = node.outputs[partial.output]
        self.builder.node(
            "AllReduce", (statistic,), (self.builder.tensors[statistic],), op=node.op, role=Role.COMBINE,
            phase=Phase.BACKWARD, group=partial.group, block=node.block,
        )  # fmt: skip

    def _pass_on(self, node: Node, wanted: list[int], gradient: int) -> list[int]:
        if node.kind not in PASSED_ON:
            return wanted
        tensors, result = self.builder.tensors, self.builder.tensors[node.outputs[0]].shape
        chosen = {t for p, t in enumerate(node.inputs) if passes_on(node.kind, p, tensors[t].shape, result)}
        passed = [t for t in wanted if t in chosen]
        for tensor in passed:
            self.incoming.setdefault(tensor, []).append(gradient)
        return [t for t in wanted if t not in passed]

    def _gradient_of(self, node: Node, wanted: tuple[int, ...], gradients: tuple[int, ...], kept: list[int]) -> None:
        reads = tuple(self._recomputation(t) for t in kept)
        kinds = tuple(self.builder.tensors[t] for t in wanted)
        found = self.builder.node(
            f"{node.kind}Grad", gradients + reads, kinds, op=node.op, phase=Phase.BACKWARD, block=node.block,
            attribute=tuple(node.inputs.index(t) for t in wanted),
        )  # fmt: skip
        self._add_scratch(node, wanted, gradients, reads)
        for tensor, gradient in zip(wanted, found, strict=True):
            self.incoming.setdefault(tensor, []).append(gradient)

    def _add_scratch(
        self, node: Node, wanted: tuple[int, ...], incoming: tuple[int, ...], reads: tuple[int, ...]
    ) -> None:
        """What lies beside the gradients of `wanted`, the last node, which reads `incoming` and, of the forward pass, `reads`."""
        inputs = tuple(self.builder.tensors[t].shape for t in node.inputs)
        result = self.builder.tensors[node.outputs[0]]
        is_alone, each_B = len(wanted) == 1, size_B(result.dtype)
        is_matrix = node.kind == "MatMulExt" and len(result.shape) == 2
        kind = "MatMul" if is_matrix and self.settings.device_num == 1 else node.kind
        uncounted = frozenset() if self.in_pipeline else self.half.weights
        beside = max(
            scratch(kind, node.inputs.index(t), inputs, result.shape, is_alone, t in uncounted, each_B) for t in wanted
        )
        placement = self.half.placements.get(node.op)
        if node.kind in LOOKED_UP and placement is not None and placement.partial is not None:
            table = 0 if wanted[0] in uncounted else math.prod(inputs[0])
            beside, reads = masked(math.prod(result.shape), table), incoming
        elif node.kind in BY_DIVIDEND:
            reads = incoming
        if beside.elements:
            tensor = TensorType((beside.elements,), result.dtype)
            self.builder.scratch(tensor, reads if beside.read_first else ())

    def _move_back(self, node: Node, gradient: int) -> None:
        if node.op in self.half.custom:
            self._skip_back(node, gradient)
            return
        dim, concat_dim, pieces = node.attribute or (0, 0, 1)
        (found,) = self.builder.node(
            MOVE_GRADIENT[node.kind], (gradient,), (self.builder.tensors[node.inputs[0]],),
            op=node.op, role=node.role, phase=Phase.BACKWARD, group=node.group, block=node.block,
            attribute=(concat_dim, dim, pieces) if node.kind == "AlltoAll" else (dim, concat_dim, pieces),
        )  # fmt: skip
        self.incoming.setdefault(node.inputs[0], []).append(found)

    def _skip_back(self, node: Node, gradient: int) -> None:
        """A user's own backward pass takes slices as they come: MindSpore differentiates nothing that it put in between."""
        kind = self.builder.tensors[node.inputs[0]]
        if kind != self.builder.tensors[gradient]:
            (gradient,) = self.builder.node(
                "Reshape", (gradient,), (kind,), op=node.op, role=node.role, phase=Phase.BACKWARD, block=node.block
            )
        self.incoming.setdefault(node.inputs[0], []).append(gradient)

    def _sum(self, tensor: int, node: Node) -> int | None:
        """The gradient of `tensor`: what its users sent back, added."""
        parts = self.incoming.pop(tensor, [])
        if len(parts) < 2:
            return parts[0] if parts else None
        (total,) = self.builder.node(
            "AddN", tuple(parts), (self.builder.tensors[tensor],),
            op=node.op, role=Role.ADD, phase=Phase.BACKWARD, block=node.block,
        )  # fmt: skip
        return total

    # -- recomputation -------------------------------------------------------------------------------------------------

    def _recomputation(self, tensor: int) -> int:
        """The tensor that a gradient reads for the forward tensor: itself where it was kept, or its copy."""
        if tensor not in self.builder.recomputed:
            return tensor
        if tensor not in self.copies:
            node = self.producer[tensor]
            inputs = tuple(self._recomputation(t) for t in node.inputs)
            kinds = tuple(self.builder.tensors[t] for t in node.outputs)
            copies = self.builder.node(
                node.kind, inputs, kinds, op=node.op, role=node.role, phase=Phase.RECOMPUTE, group=node.group,
                parameter=node.parameter, block=node.block, attribute=node.attribute,
            )  # fmt: skip
            self.copies.update(zip(node.outputs, copies, strict=True))
        return self.copies[tensor]

    # -- parameters ----------------------------------------------------------------------------------------------------

    def _synchronise(self) -> None:
        """Bring the gradients of every parameter together: AllReduce over its copies, or ReduceScatter and AllReduce."""
        uses: dict[str, list[Weight]] = {}
        for weight in self.half.weights.values():
            uses.setdefault(weight.parameter, []).append(weight)
        crossing: dict[str, list[Node]] = {}
        for node in self.forward_nodes:
            if node.role is Role.BORDER and node.parameter is not None:
                crossing.setdefault(node.parameter, []).append(node)
        for name, weights in uses.items():
            placement = self.half.parameters[name]
            if not placement.requires_grad:
                continue
            # Between micro-batches gradients are added up in the parameter's type, and summed over the ranks at the end.
            sums_late = self.settings.gradient_fp32_sync or self.in_pipeline
            scatters_each = self.in_pipeline and self.settings.optimizer_level is OptimizerLevel.LEVEL2
            if self.in_pipeline:
                placement = replace(placement, sums_each=False)
            sync = _Synchroniser(
                self.builder, name, placement, weights[0].block, sums_late, scatters_each, self.in_pipeline
            )
            kind = TensorType(placement.slice_shape, placement.dtype)
            arrived = [(w.summed, self.incoming.pop(w.used, [])) for w in weights]
            # MindSpore casts a weight for every use; that these are one here comes later.
            if scatters_each or sync.sums_each:
                arrived = [(summed, [part]) for summed, parts in arrived for part in parts]
            received = [self._receive_gradient(n, kind) for n in crossing.get(name, ()) if n.kind == "Send"]
            total = sync.run(arrived, received)
            for node in crossing.get(name, ()):
                if node.kind == "Receive" and total is not None:
                    self._send_gradient(node, total)


class _Synchroniser:
    """Writes what happens to the gradient of one parameter between its users and the optimizer."""

    def __init__(
        self,
        builder: Builder,
        name: str,
        placement: ParameterPlacement,
        block: str | None,
        gradient_fp32_sync: bool,
        scatters_each: bool,
        adds_up: bool,
    ) -> None:
        self.builder, self.name, self.placement, self.block = builder, name, placement, block
        self.adds_up = adds_up
        """Whether it is the gradient of one of several micro-batches, which is added to those before (AssignAdd)."""
        self.scatters_each = scatters_each
        """Whether the gradient of every use is scattered by itself, on its way to where all add up."""
        self.sums_early = not gradient_fp32_sync and not placement.shared
        """Whether gradients are summed in the type in use, before they are cast to that of the parameter."""
        self.sums_each = placement.sums_each

    def run(self, arrived: list[tuple[bool, list[int]]], received: Sequence[int]) -> int | None:
        """The gradient as the optimizer gets it, None if there is none.

        `arrived`: for every use whether MindSpore sums its gradient, and the gradients that came back. `received`: those of other
        stages, which add up to theirs in all micro-batches.
        """
        done = []
        for summed in (True, False):
            mirror = self.placement.mirror if summed else None
            parts = [self._stored(gradients, mirror) for s, gradients in arrived if s is summed and gradients]
            sums = received if summed else ()
            if parts or sums:
                late = None if any(early for _, early in parts) else mirror
                done.append(self._together([g for g, _ in parts], sums, late))
        if len(done) > 1:
            return self._node("AddN", tuple(done), self.placement.slice_shape, self.placement.dtype)
        return done[0] if done else None

    def _stored(self, gradients: list[int], mirror: DeviceGroup | None) -> tuple[int, bool]:
        """The gradient of one use in the parameter's own type, and whether it was summed before."""
        self.builder.kept.update(gradients)
        whole, used = self.placement.layout.slice_shape, self.builder.tensors[gradients[0]].dtype
        gradient = gradients[0] if len(gradients) == 1 else self._node("AddN", tuple(gradients), whole, used)
        if used == self.placement.dtype:
            return gradient, False
        early = mirror is not None and self.sums_early
        if early:
            gradient = self._node("AllReduce", (gradient,), whole, used, mirror)
        return self._node("Cast", (gradient,), whole, self.placement.dtype), early

    def _together(self, parts: list[int], received: Sequence[int], mirror: DeviceGroup | None) -> int:
        shape, dtype = self.placement.layout.slice_shape, self.placement.dtype
        if mirror is not None and self.sums_each:
            parts, mirror = [self._node("AllReduce", (part,), shape, dtype, mirror) for part in parts], None
        is_shared = self.placement.shard > 1
        if is_shared and self.scatters_each:
            parts, shape = [self._scattered(part) for part in parts], self.placement.slice_shape
        added = [self._node("AddN", tuple(parts), shape, dtype)] if len(parts) > 1 else parts
        scatters_sum = is_shared and not self.scatters_each
        if self.adds_up:
            gradient = self.builder.tensor(TensorType(shape, dtype), kept=True)
            for one in (*added, *(() if scatters_sum else received)):
                gradient = self._node("AssignAdd", (one, gradient), shape, dtype)
        else:
            (gradient,) = added
        if scatters_sum:
            gradient, shape = self._scattered(gradient), self.placement.slice_shape
            for one in received:
                gradient = self._node("AssignAdd", (one, gradient), shape, dtype)
        if mirror is not None:
            gradient = self._node("AllReduce", (gradient,), shape, dtype, mirror)
        return gradient

    def _scattered(self, gradient: int) -> int:
        placement = self.placement
        return self._node("ReduceScatter", (gradient,), placement.slice_shape, placement.dtype, placement.gather)

    def _node(
        self, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], dtype: str, group: DeviceGroup | None = None
    ) -> int:
        (gradient,) = self.builder.node(
            kind, inputs, (TensorType(shape, dtype),), op=self.name, role=Role.SYNC, phase=Phase.BACKWARD, group=group,
            parameter=self.name, block=self.block,
        )  # fmt: skip
        self.builder.kept.add(gradient)
        return gradient
