"""What a device needs whatever the plan: enough to tell without a search that it is too much."""

import math
from dataclasses import dataclass

from ms_symtensor.cost.parameter import STATES_B
from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.constraints.obstacle import amount
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Floor:
    """Bytes: `buffer_B` on each of several devices, however many these are; `weights_B` and `states_B` on all together."""

    buffer_B: int = 0
    weights_B: int = 0
    states_B: int = 0

    def of(self, request: Request) -> float:
        """Bytes that the fullest device needs at least."""
        shared_B = self.weights_B + (0 if True in request.limits.swaps else self.states_B)
        return self.always_B(request) + shared_B / request.device_num

    def always_B(self, request: Request) -> int:
        """Those of them that more devices do not make fewer."""
        return self.buffer_B if request.device_num > 1 else 0

    def require_room(self, request: Request) -> None:
        """InfeasibleError where no plan fits, whatever else is changed."""
        if request.limit_B < self.always_B(request):
            raise InfeasibleError(
                f"nothing fits {amount(request.limit_B)} on {request.space}: whatever the plan, and on any number of devices"
                f" above 1, the buffers of a communicator alone take {amount(self.buffer_B)} of a device; give it more memory"
            )


def floor_of(graph: Graph) -> Floor:
    """The floor of all plans for `graph`.

    Several devices are a communicator at least: that between stages, or that over which the gradient of a weight, or what comes
    of slices of it, is all-gathered. And each element of a weight, and of its optimizer states, is somewhere.
    """
    trained = [one for one in graph.parameters if one.requires_grad]
    weights_B = sum(math.prod(one.type.shape) * size_B(one.type.dtype) for one in graph.parameters)
    states_B = sum(math.prod(one.type.shape) * STATES_B for one in trained)
    return Floor(HCCL_BUFFER_B if trained else 0, weights_B, states_B)
