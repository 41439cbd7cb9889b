"""What is asked of a space of step layouts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.constraints.limits import FREE, Limits


@dataclass(frozen=True)
class Question:
    """The fastest step within `limits` on `cluster` whose devices hold `limit_B` bytes.

    Attributes:
        rules: signatures of further operators, by primitive name.
        keep: the best of so many step layouts are told.
        known_s: seconds of a step that is known; what cannot beat it is not looked at closely.
    """

    cluster: Cluster
    limit_B: float
    rules: Mapping[str, Rule] | None = None
    limits: Limits = FREE
    keep: int = 10
    incumbent_s: float = math.inf
