"""What tensor ranks send each other around a product whose weight they have parts of.

Without sequence parallelism all of them hold the tokens, and sum up what each makes of its part; with it, each holds its part of
the tokens, gathers the others' before a product, and scatters the sums behind it.
"""

from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cost.configuration import Part
from ms_symtensor.cost.shapes import Array, Shapes
from ms_symtensor.cost.work import Operator, Transfer


def gathered(
    s: Shapes, operator: Operator, name: str, size_B: Array, times: Array | float = 1.0
) -> tuple[Operator, Operator]:
    """The product `operator` behind which the ranks hold parts of its input's gradient, of `size_B` bytes in all; before it, what
    gathers its input.

    The weight's gradient reads the whole input: MindSpore's programs keep it, unless that is recomputed; others gather it again,
    under the product for the input's gradient where they do not wait. Sums may go on under that for the weight's.
    """
    cut, whole = s.sequence_parallel * times, (1 - s.sequence_parallel) * times
    of_input, of_weight = operator.backward
    gather = Operator(
        sent=(Transfer(f"{name}: tokens", Collective.ALL_GATHER, "tp", size_B, cut),),
        part=Part.GATHERS,
        part_kept_B=s.mindspore * cut * (1 - 1 / s.tp) * size_B,
    )
    again = Transfer(f"{name}: tokens again", Collective.ALL_GATHER, "tp", size_B, cut * (1 - s.mindspore), of_input)
    sums = (
        Transfer(f"{name}: gradients of tokens", Collective.REDUCE_SCATTER, "tp", size_B, cut, of_weight),
        Transfer(f"{name}: gradient sums", Collective.ALL_REDUCE, "tp", size_B, whole, of_weight),
    )
    return gather, operator.sending(back=(again, *sums))


def scattered(s: Shapes, operator: Operator, name: str, size_B: Array, times: Array | float = 1.0) -> Operator:
    """`operator` whose result is a partial sum of `size_B` bytes on every rank."""
    cut, whole = s.sequence_parallel * times, (1 - s.sequence_parallel) * times
    return operator.sending(
        (
            Transfer(f"{name}: partial sums", Collective.REDUCE_SCATTER, "tp", size_B, cut),
            Transfer(f"{name}: partial sums", Collective.ALL_REDUCE, "tp", size_B, whole),
        ),
        (Transfer(f"{name}: gradient", Collective.ALL_GATHER, "tp", size_B, cut),),
    )
