"""What a step hangs on: the elasticity of its time in every number of the cluster,

    e_x = d ln T / d ln x.

T is the plan's formula (`cost.plan_price`), whose expressions are those that `explain` prints. They are differentiated as they
are compiled, by central differences in ln x. T is homogeneous: seconds times k and rates over k make a step k times as long. So

    sum of e over times - sum of e over rates = 1                                    (Euler's theorem)

but for a plan that stands within STEP of a corner of max(): there a difference has no meaning.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.plan_price import PlanBill, priced
from ms_symtensor.cost.runtime import Runtime
from ms_symtensor.sweep.parameters import Unit, changed, parameters

STEP = 1e-5
"""Of ln x: the error of a difference is about its square (1e-10), that of rounding 1e-16 over it (1e-11)."""


@dataclass(frozen=True)
class Elasticities:
    """By the path of a number; `times`, `rates`: the sums over numbers of these units."""

    of: Mapping[str, float]
    times: float
    rates: float

    @property
    def euler(self) -> float:
        """1 but for rounding."""
        return self.times - self.rates


def elasticities(bill: PlanBill, cluster: Cluster, runtime: Runtime) -> Elasticities:
    """Those of the step of `bill` on `cluster` under `runtime`."""
    found: dict[str, float] = {}
    sums = dict.fromkeys(Unit, 0.0)
    for one in parameters(cluster):
        more, less = (
            priced(bill, changed(cluster, one.path, math.exp(step)), runtime).step_time_s for step in (STEP, -STEP)
        )
        found[one.path] = (math.log(more) - math.log(less)) / (2 * STEP)
        sums[one.unit] += found[one.path]
    return Elasticities(found, sums[Unit.TIME], sums[Unit.RATE])
