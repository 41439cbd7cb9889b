"""The training step around a forward network, so that the compiler shows gradients and their synchronisation."""

from typing import Any

from ms_symtensor.bridge.compiler.host import import_mindspore


def training_cell(network: Any, optimizer: Any = None) -> Any:
    """A cell that takes the inputs of `network` and then the initial gradient (`sens`, of the loss's type and shape).

    It returns (loss, gradients of the trainable parameters in their order), or, with an `optimizer` (a cell that takes
    the gradients), the loss after the update. The initial gradient is an input because MindSpore folds a constant one.
    """
    import_mindspore()
    from ms_symtensor.bridge.apply.training_step import GradientStep, OptimizerStep

    cell = GradientStep(network) if optimizer is None else OptimizerStep(network, optimizer)
    cell.set_train()
    return cell
