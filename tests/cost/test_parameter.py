"""What parameters cost at rest and per step."""

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.parameter import STATES_B, parameter_cost, updating_B
from ms_symtensor.program.parameters import place_parameter
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.graph import Parameter, TensorType
from ms_symtensor.tensor.layout import Layout

A2 = load("atlas_800t_a2")
WEIGHT = Parameter("weight", TensorType((1024, 512), "float32"))
COPIED = Layout((4, 2), (0, -1), (1024, 512))  # cut in two, four copies


def cost(level, in_gradient=True, parameter=WEIGHT, swap=False):
    settings = Settings(8, optimizer_level=OptimizerLevel(level), swap_optimizer=swap)
    return parameter_cost(A2, place_parameter(parameter, COPIED, settings), settings, "bfloat16", in_gradient)


def test_bytes_at_rest():
    whole, shared = cost(0), cost(1)
    assert whole.weight_B == whole.gradient_B == 512 * 512 * 4
    assert whole.states_B == 512 * 512 * STATES_B
    assert (shared.weight_B, shared.states_B) == (whole.weight_B // 4, whole.states_B // 4)


def test_copies_in_use_are_dropped_at_level_3():
    assert cost(0).used_B == cost(1).used_B == 512 * 512 * 2
    assert cost(3).used_B == 0


def test_level_3_gathers_again_only_what_a_gradient_reads():
    assert cost(0).gather_s == 0.0
    assert cost(3).gather_s == 2 * cost(1).gather_s
    assert cost(3, in_gradient=False).gather_s == cost(1).gather_s
    assert cost(1, in_gradient=False).used_B == 0


def test_a_frozen_parameter_is_gathered_but_has_no_gradient_and_no_states():
    frozen = Parameter("weight", WEIGHT.type, requires_grad=False)
    assert cost(3, parameter=frozen).gather_s == cost(3).gather_s
    assert cost(1, parameter=frozen).used_B == cost(1).used_B
    found = cost(0, parameter=Parameter("weight", WEIGHT.type, requires_grad=False))
    assert (found.scatter_s, found.sum_s, found.update_s, found.gradient_B, found.states_B) == (0.0, 0.0, 0.0, 0, 0)
    assert found.weight_B == 512 * 512 * 4


def test_states_on_the_host_are_fetched_and_brought_back():
    kept, swapped = cost(1), cost(1, swap=True)
    assert swapped.states_B == 0
    copies_s = 2 * kept.states_B / A2.host.bandwidth_Bps + A2.device.op_overhead_s
    assert swapped.update_s == kept.update_s + copies_s
    assert (swapped.weight_B, swapped.gradient_B, swapped.gather_s) == (kept.weight_B, kept.gradient_B, kept.gather_s)
    frozen = Parameter("weight", WEIGHT.type, requires_grad=False)
    assert cost(1, parameter=frozen, swap=True) == cost(1, parameter=frozen)


def test_while_a_parameter_is_updated_its_states_are_on_the_device():
    def placed(rows, trains=True):
        parameter = Parameter("weight", TensorType((rows, 512), "float32"), requires_grad=trains)
        return place_parameter(parameter, Layout((4, 2), (0, -1), (rows, 512)), Settings(8))

    found = {"small": placed(64), "large": placed(1024), "frozen": placed(4096, trains=False)}
    assert updating_B(found) == 512 * 512 * STATES_B
    assert updating_B({}) == 0
