"""Recurrent layers that are one operator on Ascend: MindSpore has no distributed form of them. Time comes first."""

from ms_symtensor.ops.quirks import Quirks
from ms_symtensor.ops.rule import Computed, alike
from ms_symtensor.ops.signature import Dims, OpView, Signature, Unit, named

_INSTEAD = "use nn.LSTMCell, nn.GRUCell or nn.RNNCell step by step"


def recurrent(op: OpView) -> Signature:
    """`t! b i, i+h gates, … -> t! b h`: every step reads the one before; work over inputs, states and gates.

    Weights of the input and of the state are one tensor (DynamicRNN) or two (DynamicGRUV2).
    """
    inputs: list[Dims] = [("t", "b", None)]
    for tensor in op.inputs[1:]:
        is_state = tensor.shape[-2:] == op.outputs[0].shape[1:]
        inputs.append((None,) * (len(tensor.shape) - 2) + ("b", None) if is_state else (None,) * len(tensor.shape))
    matrices = [t.shape for t in op.inputs[1:] if len(t.shape) == 2 and t.shape[-1] > op.outputs[0].shape[-1]]
    products = sum(rows * gates for rows, gates in matrices)
    return named(
        op, inputs, [("t", "b", None)] * len(op.outputs), mesh=("t", "b"), fixed=frozenset("t"), unit=Unit.CUBE,
        flops_per_point=2.0 * products, keeps_inputs=tuple(range(len(op.inputs))), keeps_outputs=tuple(range(len(op.outputs))),
    )  # fmt: skip


RULES = alike("DynamicRNN DynamicGRUV2", Computed(recurrent, Quirks(instead=_INSTEAD)))
