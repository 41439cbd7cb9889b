"""What MindSpore computes again in the backward pass, where blocks are recomputed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ms_symtensor.program.program import ParameterPlacement, is_memory_view
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.tensor.graph import Graph, Op

OUTSIDE = ""
"""What stands for a block where operators of none are recomputed, each by itself."""


def name_in_block(op: Op) -> str:
    """The primitive of `op` as its block knows it; the full name of `op` where it has none there or is functional."""
    return ".".join((*op.cell[len(_path(op)) :], op.primitive)) if is_selectable(op) else op.name


def is_selectable(op: Op) -> bool:
    """Whether a plan can choose for `op` alone whether it is recomputed: it has a primitive inside its block."""
    block = _path(op)
    return bool(block and op.primitive) and op.cell[: len(block)] == block


def gathering_communication(ops: Sequence[Op], names: tuple[str, ...]) -> Recompute:
    """Recomputed are the operators called `names` and the communication of a block with the operators `ops`."""
    every = tuple(dict.fromkeys(name_in_block(op) for op in ops if op.primitive or op.type == "Cast"))
    return Recompute(communication=True, kept=tuple(name for name in every if name not in names))


def gathering_again(stage: StagePlan, graph: Graph) -> StagePlan:
    """`stage`, whose blocks that are not recomputed as a whole gather again what other ranks hold."""
    recomputation = dict(stage.settings.recompute)
    held = {op.block for op in graph.ops if op.name in stage.strategies}
    parts: dict[str, list[Op]] = {}
    for op in graph.ops:
        if op.block is not None and op.block in held:
            parts.setdefault(op.block, []).append(op)
    for block, ops in parts.items():
        own = recomputation.get(block)
        if own is None or own.only:
            recomputation[block] = gathering_communication(ops, own.only if own is not None else ())
    return replace(stage, settings=replace(stage.settings, recompute=recomputation))


def _path(op: Op) -> tuple[str, ...]:
    return () if op.block is None else tuple(op.block.split("."))


def _is_beside_cells(op: Op) -> bool:
    """Whether MindSpore names `op` as if no cell had called it (`mint.repeat_interleave`), so that no cell recomputes it."""
    return op.name.startswith("Default/") and op.name.count("/") == 1


@dataclass(frozen=True)
class RecomputedWork:
    """Which nodes of the partitioned program have a copy in the backward pass.

    The operators of a recomputed block have, except views, the one that delivers the block's result, those it keeps, and
    those that MindSpore names without a cell; a gradient reads the copy wherever it stands. Communication and everything else
    that moves a tensor between layouts (Reshape included) has where the block recomputes communication, or where it belongs
    to a functional operator, which carries no mark. A move belongs to its consumer, or, where that carries none and is no
    Reshape, to its producer. `results` are further operators whose output leaves their block: those that another pipeline
    stage reads.
    """

    graph: Graph
    settings: Settings
    results: frozenset[str] = frozenset()

    def work(self, op: Op) -> bool:
        """Whether the work of operator `op` is done again."""
        found = self._of(op)
        if found is None or self._leaves(op) or is_memory_view(op.type) or _is_beside_cells(op):
            return False
        if found.only:
            return self._alone(op)
        return not found.kept or name_in_block(op) not in found.kept

    def communication(self, op: Op) -> bool:
        """Whether partial results of `op` are combined again."""
        found = self._block_of(op)
        if found is None or (found.kept_communication and name_in_block(op) in found.kept_communication):
            return False
        return found.communication or not is_selectable(op)

    def move(self, consumer: Op, producer: Op | None) -> bool:
        """Whether a tensor that `producer` laid out is moved again for `consumer`.

        On one device nothing is moved: a Reshape is work like any other.
        """
        if consumer.type == "Reshape" and self._alone(consumer):
            return True
        if self.settings.device_num > 1:
            for op in (consumer, None if consumer.type == "Reshape" else producer):
                if op is not None and self._is_marked(op):
                    return self.communication(op)
        return self._block_of(consumer) is not None

    def _is_marked(self, op: Op) -> bool:
        """Whether `op` tells if what is moved to it or from it is moved again."""
        found = self._block_of(op)
        return found is not None and found.is_marked and is_selectable(op)

    def gather(self, op: Op, placement: ParameterPlacement, is_cast: bool) -> bool:
        """Whether the weight of `placement`, which `op` reads sharded by the optimizer, is gathered again.

        Level 3 does. But where a sum over the other shards follows (a mirror), MindSpore starts to copy only at the gathers of
        weights that are cast before use and summed in their own type; the others are copied in a recomputed block. In networks
        of `@lazy_inline` only operators of recomputed blocks gather again, but for those that are kept.
        """
        if self.settings.optimizer_level is not OptimizerLevel.LEVEL3:
            return False
        if placement.in_shared_block:
            found = self._block_of(op)
            return found is not None and name_in_block(op) not in found.kept
        if placement.mirror is None or (is_cast and self.settings.gradient_fp32_sync):
            return True
        return self._block_of(op) is not None and not self._leaves(op)

    def _leaves(self, op: Op) -> bool:
        """Whether the output of `op` leaves its block."""
        return op.name in self._results or op.name in self.results

    def _of(self, op: Op) -> Recompute | None:
        return self.settings.recompute.get(op.block or OUTSIDE)

    def _alone(self, op: Op) -> bool:
        """Whether `op` itself is said to be recomputed, and not its block."""
        found = self._of(op)
        return found is not None and name_in_block(op) in found.only

    def _block_of(self, op: Op) -> Recompute | None:
        """What is said of the block of `op`, if it is recomputed and not some of its operators alone."""
        found = self._of(op)
        return None if found is None or found.only else found

    @cached_property
    def _results(self) -> frozenset[str]:
        """The operators whose output leaves their block."""
        if not self.settings.recompute:
            return frozenset()
        users = self.graph.users
        return frozenset(
            op.name
            for op in self.graph.ops
            if op.block is not None
            for source in op.results
            if any(user.block != op.block for user, _ in users.get(source, ()))
        )
