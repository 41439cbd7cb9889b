"""What a uniform layout makes of a network, from one with few blocks on every stage, of which the middle one stands for many.

The first and the last block of a stage may keep or move other tensors than those between them, which are all alike. The bill is
that of the whole network (`uniform_plan`, `plan_bill`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from model_zoo.config import TransformerConfig
from ms_symtensor.cost.bill import Bill, bill_of
from ms_symtensor.cost.flops import model_flops
from ms_symtensor.cost.plan_price import PlanBill, plan_bill
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.program.fusion import fused, fused_cells
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.passes import passes
from ms_symtensor.program.program import ParameterPlacement
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.program.stage_memory import micro_batch
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.tensor.graph import ParameterRef
from ms_symtensor.uniform.layout import UniformLayout
from ms_symtensor.uniform.plan import uniform_plan

FEW = 3
"""Blocks of a stage that stand for all: the first, the last, and one between them."""


def folded_bill(
    config: TransformerConfig, layout: UniformLayout, fuses: frozenset[str] = frozenset(), is_lenient: bool = False
) -> tuple[PlanBill, float]:
    """The bill of `layout` for `config`, and the model FLOPs of a micro-batch.

    Errors: those of `uniform_plan` and `plan_bill`.
    """
    held = layout.stages.of(config.num_layers)
    if not _is_foldable(config, layout, held):
        plan = uniform_plan(config, layout, is_lenient)
        bill = plan_bill(plan.graph, plan.stages, plan.pipeline, plan.known, fuses=fuses)
        return bill, model_flops(plan.graph, plan.known)
    few = tuple(min(blocks, FEW) for blocks in held)
    short = replace(config, num_layers=sum(few))
    plan = uniform_plan(short, replace(layout, stages=replace(layout.stages, layers=few)), is_lenient)
    assert plan.pipeline is not None
    programs = partition_stages(plan.graph, plan.stages, plan.pipeline, known=plan.known)
    stages = [
        _Stage(program, stage, plan.known, fuses, blocks)
        for program, stage, blocks in zip(programs, plan.stages, held, strict=True)
    ]
    bill = PlanBill(
        tuple(stage.bill for stage in stages),
        tuple(stage.parameters for stage in stages),
        plan.stages,
        plan.pipeline,
        tuple(stage.memory_B for stage in stages),
    )
    deep = {plan.graph.blocks[0]: 1 + config.num_layers - short.num_layers}
    return bill, model_flops(plan.graph, plan.known, deep)


def _is_foldable(config: TransformerConfig, layout: UniformLayout, held: tuple[int, ...]) -> bool:
    """Whether the blocks of every stage are alike, some stage has many, and stages take micro-batches."""
    stages, again = layout.stages, layout.recompute
    if stages.number == stages.micro_batch_num == 1 or stages.interleave > 1 or max(held) <= FEW:
        return False
    if config.dense_layers or config.second_token_weight:
        return False
    return all(
        again.whole(stage, blocks) in (0, blocks)
        and set(again.selected(stage, blocks).values()) <= {blocks - again.whole(stage, blocks)}
        for stage, blocks in enumerate(held)
    )


@dataclass(frozen=True)
class _Stage:
    """A stage that truly has so many `blocks`, with at most FEW of them in its `written` program."""

    written: StageProgram
    plan: StagePlan
    known: Meanings
    fuses: frozenset[str]
    blocks: int

    @cached_property
    def program(self) -> StageProgram:
        cells = fused_cells(self.written.graph, self.known, self.fuses)
        return replace(self.written, micro=fused(self.written.micro, cells))

    @property
    def names(self) -> tuple[str, ...]:
        """Every block by the name of the written one that stands for it."""
        written = self.written.graph.blocks
        return (*written[:1], *written[1:2] * (self.blocks - 2), *written[2:]) if self.blocks > FEW else written

    @property
    def times(self) -> dict[str, int]:
        return {name: self.names.count(name) for name in self.names}

    @property
    def bill(self) -> Bill:
        one = self.program
        return bill_of(one.graph, self.plan, one.micro, self.known, self.times, one.is_once, one.stage, self.fuses)

    @property
    def block_of(self) -> dict[str, str]:
        """The block of every parameter that is in one."""
        ops = self.written.graph.ops
        return {s.name: op.block for op in ops if op.block for s in op.inputs if isinstance(s, ParameterRef)}

    @property
    def parameters(self) -> Mapping[str, ParameterPlacement]:
        """Those of all blocks, under names of their own."""
        block_of, times = self.block_of, self.times
        return {
            f"{name}{'+' * further}": placement
            for name, placement in self.program.parameters.items()
            for further in range(times.get(block_of.get(name, ""), 1))
        }

    @property
    def memory_B(self) -> Mapping[str, int]:
        one, pipeline = self.program, self.program.pipeline
        every = passes(one.stage, pipeline.stage_num, pipeline.micro_batch_num)
        activations_B = micro_batch(one.micro, one.scatters_gradients, False).peak([self.names], every).total_B
        swaps = self.plan.settings.swap_optimizer
        return stage_memory_B(
            one.micro, pipeline.stage_num, one.scatters_gradients, activations_B, self.times, self.block_of, swaps
        )
