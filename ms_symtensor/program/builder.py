"""Collects the tensors and nodes of a local program while it is written down."""

from ms_symtensor.program.program import Node, Phase, Role
from ms_symtensor.tensor.graph import TensorType
from ms_symtensor.tensor.layout import DeviceGroup


class Builder:
    """The only mutable thing in this room; `partition` owns one and freezes what it collected."""

    def __init__(self) -> None:
        self.tensors: list[TensorType] = []
        self.nodes: list[Node] = []
        self.kept: set[int] = set()
        self.given: set[int] = set()
        self.held: set[int] = set()
        self.seed: int | None = None
        self.computed_again: set[int] = set()
        self._known: dict[tuple, tuple[int, ...]] = {}

    def tensor(self, kind: TensorType, kept: bool = False) -> int:
        """A new local tensor; `kept` ones are parameters, inputs and constants."""
        self.tensors.append(kind)
        if kept:
            self.kept.add(len(self.tensors) - 1)
        return len(self.tensors) - 1

    def node(
        self,
        kind: str,
        inputs: tuple[int, ...],
        outputs: tuple[TensorType, ...],
        *,
        op: str,
        role: Role = Role.WORK,
        phase: Phase = Phase.FORWARD,
        group: DeviceGroup | None = None,
        parameter: str | None = None,
        block: str | None = None,
        attribute: tuple[int, ...] = (),
        once: bool = False,
        again: bool = False,
        peer: int | None = None,
        scratch: TensorType | None = None,
    ) -> tuple[int, ...]:
        """Append a node and return its new output tensors; with `once`, an equal node on the same inputs is shared.

        `again`: gradients read its outputs from a copy that is recomputed in the backward pass.
        """
        key = (kind, inputs, outputs, group and group.ranks(), attribute) if once else ()
        if once and key in self._known:
            if again:
                self.computed_again.update(self._known[key])
            return self._known[key]
        numbers = tuple(self.tensor(o) for o in outputs)
        during = None if scratch is None else self.tensor(scratch)
        self.nodes.append(
            Node(kind, inputs, numbers, role, phase, op, group, parameter, block, attribute, peer, during)
        )
        if again:
            self.computed_again.update(numbers)
        if once:
            self._known[key] = numbers
        return numbers

    def send(self, tensor: int, receiver: int, op: str, parameter: str | None = None) -> None:
        """Append a Send of `tensor` to pipeline stage `receiver`."""
        self.node("Send", (tensor,), (), op=op, role=Role.BORDER, parameter=parameter, peer=receiver)
