"""Collects the tensors and nodes of a local program while it is written down."""

from typing import TYPE_CHECKING, TypedDict

from ms_symtensor.program.program import Node, Phase, Role
from ms_symtensor.tensor.graph import TensorType
from ms_symtensor.tensor.layout import DeviceGroup

if TYPE_CHECKING:
    from typing_extensions import Unpack  # typing has it from Python 3.11 on


class Fields(TypedDict, total=False):
    """What some nodes have beside kind, tensors, operator, role and phase."""

    group: DeviceGroup | None
    parameter: str | None
    block: str | None
    attribute: tuple[int, ...]
    peer: int | None


class Builder:
    """The only mutable thing in this room; `partition` owns one and freezes what it collected."""

    def __init__(self) -> None:
        self.tensors: list[TensorType] = []
        self.nodes: list[Node] = []
        self.kept: set[int] = set()
        self.given: set[int] = set()
        self.held: set[int] = set()
        self.seed: int | None = None
        self.recomputed: set[int] = set()
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
        once: bool = False,
        recomputation: bool = False,
        **more: "Unpack[Fields]",
    ) -> tuple[int, ...]:
        """Append a node and return its new output tensors; with `once`, an equal node on the same inputs is shared.

        `recomputation`: gradients read its outputs from a copy that is recomputed in the backward pass.
        """
        group = more.get("group")
        key = (kind, inputs, outputs, group and group.ranks(), more.get("attribute", ())) if once else ()
        if once and key in self._known:
            if recomputation:
                self.recomputed.update(self._known[key])
            return self._known[key]
        numbers = tuple(self.tensor(o) for o in outputs)
        self.nodes.append(Node(kind, inputs, numbers, role, phase, op, **more))
        if recomputation:
            self.recomputed.update(numbers)
        if once:
            self._known[key] = numbers
        return numbers

    def scratch(self, kind: TensorType, read_first: tuple[int, ...]) -> None:
        """A tensor that is there only while the last node runs, which reads these inputs before its outputs are there."""
        self.nodes[-1] = self.nodes[-1]._replace(scratch=self.tensor(kind), read_first=read_first)

    def send(self, tensor: int, receiver: int, op: str, parameter: str | None = None) -> None:
        """Append a Send of `tensor` to pipeline stage `receiver`."""
        self.node("Send", (tensor,), (), op=op, role=Role.BORDER, parameter=parameter, peer=receiver)
