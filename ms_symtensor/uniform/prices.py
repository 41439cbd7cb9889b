"""Prices of uniform layouts of one network for one request, and what no layout is better than."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from model_zoo.config import TransformerConfig
from ms_symtensor.cost.plan_price import PlanBill, PlanPrice, priced
from ms_symtensor.errors import SymTensorError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.uniform.dispatch import with_safe_tokens
from ms_symtensor.uniform.folded import folded_bill
from ms_symtensor.uniform.layout import NO_RECOMPUTATION, Degrees, Stages, UniformLayout
from ms_symtensor.uniform.request import as_run, of_micro_batch

ACCUMULATION = 0.05
"""empirical: no step of several micro-batches spends more than this share of its time on adding up gradients."""

STAGED = 16
"""empirical: programs of one stage that take as long to price as those of a pipeline's stages."""

PRODUCTS = 3
"""Weights of an expert: gate, up and down."""

FORWARD = 1 / 3
"""The share of a forward pass in a micro-batch's time: a backward pass has two products for each one of it."""


@dataclass(frozen=True)
class _Whole:
    """A micro-batch of so many samples in the whole network on one stage: seconds, bytes at rest by what for, and bytes of the
    weights in use, gathered or cast.
    """

    samples: int
    seconds: float
    at_rest_B: Mapping[str, int]
    in_use_B: int

    def recomputed(self, layout: UniformLayout, samples: int, limit_B: int) -> float:
        """The share of the blocks that the first stage of `layout` has to recompute, as a guess: it keeps what a micro-batch
        of so many `samples` needs in about the whole network, since a stage of P holds P micro-batches.
        """
        stages = layout.stages
        in_flight = 1 + (stages.number - 1) / (stages.number * stages.interleave) if stages.interleave > 1 else 1.0
        needed_B = in_flight * self.activations_B * samples / self.samples
        over_B = (self.kept_B(layout.optimizer_level) + self.in_use_B) / stages.number + needed_B - limit_B
        return max(0.0, over_B / max(1.0, needed_B))

    @property
    def activations_B(self) -> int:
        """All but the weights in use."""
        return max(0, self.at_rest_B["activations"] - self.in_use_B)

    def kept_B(self, level: OptimizerLevel) -> int:
        """Weights, states and, unless they are scattered, gradients."""
        kept = ("parameters", "optimizer_states", *(("gradients",) if level <= OptimizerLevel.LEVEL1 else ()))
        return sum(self.at_rest_B[name] for name in kept)


@dataclass
class Prices:
    """Prices of layouts of the network `config`, whose batch is that of a step. `number`: how many were asked for. `highest`:
    up to which level the optimizer of a layout may be sharded, for what its bytes are at least. `work`: programs of one stage
    that were priced, or others that take as long (`STAGED`).
    """

    config: TransformerConfig
    request: Request
    highest: Callable[[UniformLayout], OptimizerLevel] = attrgetter("optimizer_level")
    number: int = 0
    work: int = 0
    _whole: dict[tuple[int, Degrees, bool], _Whole] = field(default_factory=dict)
    _refused: dict[tuple[int, Degrees, bool], SymTensorError] = field(default_factory=dict)
    _known: dict[UniformLayout, PlanPrice] = field(default_factory=dict)

    def of(self, layout: UniformLayout) -> PlanPrice:
        """The price of `layout`. Errors: those of `folded_bill`."""
        if layout not in self._known:
            self.number += 1
            bill = self._as_run(of_micro_batch(self.config, layout), layout)
            self._known[layout] = priced(bill, self.request.cluster, self.request.runtime)
        return self._known[layout]

    def rough(self, layout: UniformLayout) -> tuple[float, float, float]:
        """`least`, if a larger micro-batch takes no longer for a sample: one program for all micro-batches of equal degrees. The
        third are bytes that some device needs at least, whatever is recomputed and whichever blocks its stages hold.
        """
        level = self.highest(layout)
        if (gradients_B := self._experts_B(layout, level)) > self.request.limit_B:
            return math.inf, math.inf, gradients_B
        whole, samples = self._of_samples(layout, self.config.batch_size), self._samples(layout)
        least_s = self._least_s(layout, whole.seconds * samples / whole.samples)
        least_s *= 1 - ACCUMULATION if _is_plain(layout) else 1.0
        guess_s = least_s * (1 + FORWARD * whole.recomputed(layout, samples, self.request.limit_B))
        at_rest_B = 0.0 if _is_plain(layout) else whole.kept_B(level) / layout.stages.number
        return least_s, guess_s, at_rest_B

    def _experts_B(self, layout: UniformLayout, level: OptimizerLevel) -> float:
        """Bytes of the gradients of experts' weights that some device holds at least, where they are not scattered."""
        experts, degrees = self.config.experts, layout.degrees
        is_whole = level <= OptimizerLevel.LEVEL1 and self.request.runtime.stores is None
        if experts is None or self.config.lora is not None or not is_whole:
            return 0.0
        weights = PRODUCTS * experts.number * self.config.hidden_size * experts.intermediate_size
        weights *= sum(self.config.kind(layer).experts for layer in range(self.config.num_layers))
        slices = layout.stages.number * max(1, degrees.expert_parallel or degrees.data_parallel)
        slices *= degrees.expert_model_parallel or degrees.model_parallel
        return weights * size_B(self.config.param_dtype) / slices

    def least(self, layout: UniformLayout) -> tuple[float, float]:
        """Seconds that no step of `layout` is faster than, and a guess of what it takes with what has to be recomputed. Errors:
        those of `folded_bill`.
        """
        if _is_plain(layout):
            price = self.of(layout)
            return price.step_time_s, price.step_time_s
        samples = self._samples(layout)
        whole = self._of_samples(layout, samples)
        least_s = self._least_s(layout, whole.seconds)
        return least_s, least_s * (1 + FORWARD * whole.recomputed(layout, samples, self.request.limit_B))

    def recomputes(self, layout: UniformLayout) -> bool:
        """Whether `layout` has to recompute blocks, as a guess."""
        if _is_plain(layout):
            return True
        whole = self._of_samples(layout, self.config.batch_size)
        return whole.recomputed(layout, self._samples(layout), self.request.limit_B) > 0

    def _bill(self, layout: UniformLayout, samples: int) -> PlanBill:
        """Of two micro-batches of so many samples in the whole network on one stage, so that what is done once stands apart."""
        level = min(layout.optimizer_level, OptimizerLevel.LEVEL1)
        one = UniformLayout(layout.degrees, Stages(1, 2), NO_RECOMPUTATION, level, swap_optimizer=layout.swap_optimizer)
        return self._as_run(with_safe_tokens(replace(self.config, batch_size=samples), one), one)

    def _as_run(self, network: TransformerConfig, layout: UniformLayout) -> PlanBill:
        runtime = self.request.runtime
        self.work += STAGED if layout.stages.number > 1 else 1
        return folded_bill(network, as_run(layout, runtime), runtime.fuses)

    def _samples(self, layout: UniformLayout) -> int:
        return self.config.batch_size // layout.stages.micro_batch_num

    def _of_samples(self, layout: UniformLayout, samples: int) -> _Whole:
        sharded = layout.optimizer_level != OptimizerLevel.NONE
        key = samples, layout.degrees, sharded
        if key in self._refused:
            raise self._refused[key]
        if key not in self._whole:
            try:
                self._whole[key] = self._whole_of(layout, samples)
            except SymTensorError as error:
                self._refused[key] = error
                raise
        return self._whole[key]

    def _whole_of(self, layout: UniformLayout, samples: int) -> _Whole:
        bill = self._bill(layout, samples)
        price = priced(bill, self.request.cluster, self.request.runtime)
        in_use_B = _in_use_B(bill, self.config.compute_dtype)
        return _Whole(samples, math.fsum(price.stage_each_s), price.fullest_B, in_use_B)

    @staticmethod
    def _least_s(layout: UniformLayout, whole_s: float) -> float:
        """Of a micro-batch that takes `whole_s` seconds in the whole network."""
        stages = layout.stages
        share_s = whole_s / stages.number
        return math.fsum([stages.micro_batch_num * share_s, (whole_s - share_s) / stages.interleave])


def _in_use_B(bill: PlanBill, dtype: str) -> int:
    """Bytes of the weights that the one stage of `bill` gathers, or casts to `dtype`."""
    return sum(
        times * math.prod(placement.layout.slice_shape) * size_B(dtype)
        for placement, times in bill.stages[0].parameters
        if placement.shard > 1 or size_B(placement.dtype) != size_B(dtype)
    )


def _is_plain(layout: UniformLayout) -> bool:
    """Whether there is one stage, which takes the batch as a whole."""
    return layout.stages.number == layout.stages.micro_batch_num == 1
