"""What measured steps tell about others whose micro-batch has the same shapes on a device, whatever the constants.

Which kernel a library picks for a product depends on its shapes, and with it how fast that product is; no constant of a cluster
can say so. With e_i = log(measured_i / predicted_i) for the n steps of one shape, the deviation of that shape is taken to be

    n SPREAD² / (n SPREAD² + REPEAT²) · mean(e_i),

the mean of the posterior if shapes deviate by SPREAD and equal steps by REPEAT. Shapes without a step deviate by nothing.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.configuration import Configuration

SPREAD = 0.1  # empirical: what a fit of constants leaves of the time of a block, between shapes (vtrain_a100)
REPEAT = 0.03  # empirical: steps of one configuration, run again (ascend_measured: 4 % in the median, vtrain_a100: 1 %)
FARTHEST = 3 * SPREAD  # a step that is farther off was disturbed, and nothing of it is believed


@dataclass(frozen=True)
class ShapeDeviations:
    """Logarithms of measured over predicted time, by shape."""

    by_shape: Mapping[Hashable, float]

    def factors(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """By what to multiply the predicted time of each configuration: 1 where no step had its shape."""
        return np.exp([self.by_shape.get(shape_of(c), 0.0) for c in configurations])


def shape_of(c: Configuration) -> Hashable:
    """What decides the shapes of operators on a device; not depth, copies, stages and how often they are run."""
    return (
        replace(c.model, num_layers=1), c.seq_length, c.micro_batch_size, c.model_parallel, c.sequence_parallel,
        c.context_parallel, c.exchanged_heads, c.expert_parallel, c.grouped_experts, c.recomputation, c.attention,
        c.fused_norm, c.precision, c.framework, c.fused_gradient_sums, c.compiled,
    )  # fmt: skip


def deviations(
    configurations: Sequence[Configuration], predicted_s: NDArray[np.float64], measured_s: NDArray[np.float64]
) -> ShapeDeviations:
    """The deviations of the shapes of measured steps."""
    errors: dict[Hashable, list[float]] = {}
    for configuration, error in zip(configurations, np.log(measured_s / predicted_s), strict=True):
        if abs(error) <= FARTHEST:
            errors.setdefault(shape_of(configuration), []).append(float(error))
    return ShapeDeviations(
        {
            shape: float(np.mean(each)) * len(each) * SPREAD**2 / (len(each) * SPREAD**2 + REPEAT**2)
            for shape, each in errors.items()
        }
    )
