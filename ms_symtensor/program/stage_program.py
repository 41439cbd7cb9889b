"""`partition_stages(graph, stages, pipeline)`: the program that MindSpore's compiler will write for the ranks of every stage.

A stage does its part for every micro-batch, forward and backward. Weights are gathered and cast once for all of them, as is all
that depends on weights and constants alone (MindSpore merges what is equal, but where stages are interleaved; in the backward
pass on one stage only, and not for networks of @lazy_inline). Gradients, which add up from micro-batch to micro-batch, are
reduced once (with level2 they are scattered at every micro-batch, so that only shares add up).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.program import COLLECTIVES, Collective, Node, ParameterPlacement, Phase, Program, Role
from ms_symtensor.program.settings import OptimizerLevel, StagePlan
from ms_symtensor.program.stage_graph import stage_graphs
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class StageProgram:
    """What every rank of pipeline stage `stage` runs in a step: `micro`, the nodes of one micro-batch, so often as `times`
    says. Ranks of `micro` count from 0 within the stage. `graph` is the stage's part of the network. `counted`: the loss of every
    micro-batch is multiplied by its share in a count of the whole batch.
    """

    stage: int
    graph: Graph
    pipeline: Pipeline
    level: OptimizerLevel
    micro: Program
    counted: bool = False

    @property
    def device_num(self) -> int:
        """Devices of all stages together."""
        return self.micro.device_num * self.pipeline.stage_num

    @property
    def parameters(self) -> Mapping[str, ParameterPlacement]:
        return self.micro.parameters

    @property
    def is_known(self) -> bool:
        return self.micro.is_known

    @property
    def ranks(self) -> range:
        """The global ranks of the stage."""
        return range(self.stage * self.micro.device_num, (self.stage + 1) * self.micro.device_num)

    @property
    def scatters_gradients(self) -> bool:
        """Whether gradients are scattered before they add up, so that a rank holds shares of the sums."""
        return self.level is OptimizerLevel.LEVEL2

    def times(self, node: Node) -> int:
        """How often `node` of `micro` runs in a step."""
        return 1 if self.is_once(node) else self.pipeline.micro_batch_num

    def is_once(self, node: Node) -> bool:
        """Whether `node` of `micro` runs once in a step, whatever the number of micro-batches."""
        once = node.role is Role.WEIGHT or (node.role is Role.BORDER and node.parameter is not None)
        merges_back = self.pipeline.stage_num == 1 and not self.graph.is_lazy_inline
        merges = self.pipeline.interleave == 1 and (node.phase is Phase.FORWARD or merges_back)
        if merges and node.outputs:
            once = once or self._varying.isdisjoint(node.outputs)
        if node.role is Role.SYNC and node.kind in COLLECTIVES:
            once = not (self.scatters_gradients and node.kind == "ReduceScatter")
        elif node.role is Role.SYNC and not self._received.isdisjoint(node.inputs):
            once = True
        return once

    @cached_property
    def _received(self) -> frozenset[int]:
        """Gradients of parameters that another stage has added up."""
        ends = (n for n in self.micro.nodes if n.role is Role.BORDER and n.parameter and n.phase is Phase.BACKWARD)
        return frozenset(t for node in ends for t in node.outputs)

    @cached_property
    def _varying(self) -> frozenset[int]:
        """The tensors that depend on the samples of a micro-batch, or on weights that it loads anew; and those that are
        recomputed, as that waits for the gradients of its own micro-batch.
        """
        found = set(self.micro.given)
        if self.counted and self.micro.seed is not None:
            found.add(self.micro.seed)
        for number, node in enumerate(self.micro.nodes):
            is_own = number in self.micro.loads_anew or node.phase is Phase.RECOMPUTE
            if is_own or not node.inputs or not found.isdisjoint(node.inputs):
                found.update(node.outputs)
        return frozenset(found)

    def collectives(self, rank: int) -> tuple[Collective, ...]:
        """The collectives that global rank `rank` takes part in, Send and Receive included, each as often as it runs."""
        return tuple(c for node in self.micro.nodes for c in self._collectives(node, rank))

    def _collectives(self, node: Node, rank: int) -> Iterator[Collective]:
        if node.peer is not None:
            peer = rank + (node.peer - self.stage) * self.micro.device_num
            ranks = tuple(sorted((rank, peer)))
        elif node.kind in COLLECTIVES and node.group is not None:
            ranks = tuple(self.ranks.start + r for r in node.group.ranks(rank - self.ranks.start))
        else:
            return
        kinds = [self.micro.tensors[t] for t in (*node.inputs, *node.outputs)]
        one = Collective(node.kind, ranks, kinds[0], kinds[-1], node.phase, node.op, node.parameter)
        yield from [one] * self.times(node)


def partition_stages(
    graph: Graph,
    stages: Sequence[StagePlan],
    pipeline: Pipeline,
    rules: Mapping[str, Rule] | None = None,
    known: Meanings | None = None,
    counted: bool = False,
) -> tuple[StageProgram, ...]:
    """The programs of the stages of `pipeline`, whose plans are `stages`; `graph` is the network of one micro-batch.
    `counted`: see `StageProgram`.

    Errors: InputError for a pipeline that does not fit the graph; UnknownOperatorError; InvalidStrategyError for what
    MindSpore rejects.
    """
    found = meanings(graph, rules) if known is None else known
    for stage in stages:
        if stage.settings.optimizer_level is OptimizerLevel.LEVEL3:
            raise InvalidStrategyError(
                "MindSpore does not combine optimizer_level level3 with pipeline stages (it cannot add the gradients of the"
                " first parameter of a later stage): use level1 or level2"
            )
        if stage.settings.optimizer_level is OptimizerLevel.LEVEL2 and pipeline.stage_num == 1:
            raise InvalidStrategyError(
                "MindSpore does not combine optimizer_level level2 with gradients that add up on one stage (but for networks of"
                " @lazy_inline): use level1"
            )
    parts = stage_graphs(graph, stages, pipeline, found)
    return tuple(
        StageProgram(
            part.stage,
            part.graph,
            pipeline,
            stage.settings.optimizer_level,
            partition(
                part.graph, stage, known={op.name: found[op.name] for op in part.graph.ops}, borders=part.borders
            ),
            counted,
        )
        for part, stage in zip(parts, stages, strict=True)
    )


Programs = Sequence[Program] | Sequence[StageProgram]


def programs_of(
    graph: Graph, stages: Sequence[StagePlan], pipeline: Pipeline | None, known: Meanings | None = None
) -> Programs:
    """One program for all ranks; with micro-batches one for every stage. The last ones of a graph are kept: a plan's price and
    its report are made from the same. Errors: those of `partition` and `partition_stages`.
    """
    asked, kept = (tuple(stages), pipeline), graph.derived
    if kept.get("programs are of") != asked:
        kept["programs"] = (
            (partition(graph, stages[0], known=known),)
            if pipeline is None
            else partition_stages(graph, stages, pipeline, known=known)
        )
        kept["programs are of"] = asked
    found: Programs = kept["programs"]
    return found
