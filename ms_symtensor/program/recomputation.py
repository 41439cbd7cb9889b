"""What MindSpore computes again in the backward pass, where blocks are recomputed."""

from dataclasses import dataclass
from functools import cached_property

from ms_symtensor.program.program import ParameterPlacement
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.graph import Graph, Op, OpOutput


@dataclass(frozen=True)
class Again:
    """Which nodes of the partitioned program have a copy in the backward pass.

    The operators of a recomputed block have, except the one that delivers the block's result; a gradient reads the copy
    wherever it stands. Communication and everything else that moves a tensor between layouts (Reshape included) has where
    the block recomputes communication. A move belongs to the block of its consumer, or, where that is not recomputed, to its
    producer's. `results` are further operators whose output leaves their block: those that another pipeline stage reads.
    """

    graph: Graph
    settings: Settings
    results: frozenset[str] = frozenset()

    def work(self, op: Op) -> bool:
        """Whether the work of operator `op` is done again."""
        return op.block in self.settings.recompute and op.name not in self._results and op.name not in self.results

    def communication(self, block: str | None) -> bool:
        """Whether partial results in `block` are combined again."""
        found = self.settings.recompute.get(block) if block is not None else None
        return found is not None and found.communication

    def move(self, consumer: str | None, producer: str | None) -> bool:
        """Whether a tensor is moved again from an operator of block `producer` to one of block `consumer`.

        On one device nothing is moved: a Reshape is work like any other.
        """
        if self.settings.device_num == 1:
            return consumer in self.settings.recompute
        return self.communication(consumer if consumer in self.settings.recompute else producer)

    def gather(self, op: Op, placement: ParameterPlacement, is_cast: bool) -> bool:
        """Whether the weight of `placement`, which `op` reads sharded by the optimizer, is gathered again.

        Level 3 does. But where a sum over the other shards follows (a mirror), MindSpore starts to copy only at the gathers of
        weights that are cast before use and summed in their own type; the others are copied with an operator that is.
        """
        if self.settings.optimizer_level is not OptimizerLevel.LEVEL3:
            return False
        return placement.mirror is None or (is_cast and self.settings.gradient_fp32_sync) or self.work(op)

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
            for index in range(len(op.outputs))
            if any(user.block != op.block for user, _ in users.get(OpOutput(op.name, index), ()))
        )
