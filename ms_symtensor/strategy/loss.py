"""What a plan says of its loss in micro-batches."""

from collections.abc import Sequence

from ms_symtensor.program.micro_loss import Factor
from ms_symtensor.strategy.plan import MicroBatchLoss

WHY_MEAN_OF_MEANS = (
    "the loss is no sum over samples by one count that no weight changes: micro-batches in which other numbers of tokens count"
    " weigh the same"
)


def loss_of(factors: Sequence[Factor]) -> MicroBatchLoss:
    """What micro-batches make of a loss that, or parts of which, are multiplied by `factors`; empty where they are not known."""
    if not factors:
        return MicroBatchLoss.MEAN_OF_MEANS
    return MicroBatchLoss.EACH if all(f.is_one for f in factors) else MicroBatchLoss.COUNTED


def loss_note(loss: MicroBatchLoss | None) -> str:
    """One line where micro-batches train another loss than one batch, or count over it; else empty."""
    if loss is MicroBatchLoss.MEAN_OF_MEANS:
        return f"{loss.value} ({WHY_MEAN_OF_MEANS})"
    return loss.value if loss is MicroBatchLoss.COUNTED else ""
