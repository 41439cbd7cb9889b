"""What a forward pass keeps for the backward pass, told by MindSpore's `saved_tensors_hooks`.

On the `meta` device a tensor has no address, so that one tensor saved twice is told by the operation that made it. Weights, and
views of them, are counted apart. What has no gradient and is shared by all layers (rotary tables, the mask) counts once.
"""

from dataclasses import dataclass
from typing import Any

from mindspore.graph.api import saved_tensors_hooks

from ms_symtensor.bridge.pynative.session import size_of

_VIEWS = frozenset({"Contiguous", "Transpose", "TransposeView", "TransposeExtView", "Reshape", "View", "ExpandDims"})
_ALIKE_OUTPUTS = frozenset({"FlashAttentionScore", "SplitTensor", "SplitWithSize", "Chunk"})
"""Operations that save outputs of equal shape, which are different tensors."""


@dataclass(frozen=True)
class Saved:
    """One tensor kept."""

    made_by: str
    dtype: str
    shape: tuple[int, ...]
    size_B: int
    weight: bool


class Kept:
    """Counts saved tensors once each."""

    def __init__(self) -> None:
        self._known: set[Any] = set()
        self._alive: list[Any] = []  # an id is the tensor's own as long as it lives
        self.saved: list[Saved] = []

    def hooks(self) -> Any:
        """The context in which a forward pass is counted."""
        return saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def activations_B(self) -> int:
        """Bytes kept that are no weights."""
        return sum(one.size_B for one in self.saved if not one.weight)

    def weights_B(self) -> int:
        """Bytes of weights that the backward pass reads."""
        return sum(one.size_B for one in self.saved if one.weight)

    def add_received(self, tensors: list[Any]) -> None:
        """Count what communication received and recomputation keeps."""
        for one in tensors:
            shape = tuple(int(length) for length in one.shape)
            self.saved.append(Saved("exclude_op", str(one.dtype).lower(), shape, size_of(one), False))

    def _pack(self, tensor: Any) -> Any:
        key = _identity(tensor)
        if key not in self._known:
            self._known.add(key)
            self._alive.append(tensor)
            node = tensor._grad_node
            shape = tuple(int(length) for length in tensor.shape)
            made_by = "" if node is None else _name(node)
            self.saved.append(Saved(made_by, str(tensor.dtype).lower(), shape, size_of(tensor), _is_weight(node)))
        return tensor


def _name(node: Any) -> str:
    return str(_said(node.name))


def _said(member: Any) -> Any:
    """What a member of a gradient's node says, which is a property in some versions and a method in others."""
    return member() if callable(member) else member


def _identity(tensor: Any) -> Any:
    node, shape = tensor._grad_node, tuple(tensor.shape)
    if node is None:
        shared = str(tensor.dtype) == "UInt8" or (len(shape) == 4 and shape[2] == 1)
        return (shape, str(tensor.dtype)) if shared else id(tensor)
    if _name(node) in _ALIKE_OUTPUTS:
        return id(tensor)
    return (_said(node._unique_id), shape, str(tensor.dtype), tensor.storage_offset())


def _is_weight(node: Any) -> bool:
    """Whether it is a parameter or a view of one."""
    while node is not None and _name(node) in _VIEWS:
        before = [edge[0] for edge in node.next_functions if edge[0] is not None]
        node = before[0] if len(before) == 1 else None
    return node is not None and _said(node.is_leaf) and not _name(node).startswith("input_")
