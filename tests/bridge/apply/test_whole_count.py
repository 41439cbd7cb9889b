"""MindSpore's cells that cut a batch, which count over all of it: executed on a CPU beside the network at the whole batch."""

import numpy
import pytest

mindspore = pytest.importorskip("mindspore")

from mindspore import Tensor, nn  # noqa: E402

from ms_symtensor import count_over_batch  # noqa: E402
from ms_symtensor.bridge.apply.whole_count import count_over_whole_batches, unset_factors  # noqa: E402
from tests.bridge.proof import masked_networks  # noqa: E402

MICRO_BATCHES = 4
IGNORED = -100


def values(inputs):
    """Tokens, labels and masks; the first micro-batch counts nothing, further ones more and more."""
    random = numpy.random.default_rng(3)
    counts = numpy.arange(masked_networks.BATCH)[:, None] // 2 * 2 > numpy.arange(masked_networks.SEQUENCE)
    every = [random.integers(0, masked_networks.VOCABULARY, tuple(one.shape)) for one in inputs]
    if len(every) == 3:
        every[2] = counts
    else:
        every[1] = numpy.where(counts, every[1], IGNORED)
    return [Tensor(one.astype(numpy.int32)) for one in every]


def made(name):
    cell, inputs = getattr(masked_networks, name)()
    random = numpy.random.default_rng(5)
    for parameter in cell.get_parameters():
        parameter.set_data(Tensor(random.standard_normal(parameter.shape).astype(numpy.float32)))
    cell.set_train()
    return cell, values(inputs)


def loss_and_gradients(cell, inputs, weights):
    return mindspore.value_and_grad(cell, None, weights)(*inputs)


@pytest.mark.parametrize(
    "name",
    ["at_least_one", "means", "normalised", "penalised", "total", "weighed_classes"],
)
def test_it_is_the_loss_of_the_whole_batch(name):
    cell, inputs = made(name)
    weights = mindspore.ParameterTuple(cell.trainable_params())
    loss, gradients = loss_and_gradients(cell, inputs, weights)
    assert count_over_batch(cell, *inputs, micro_batch_num=MICRO_BATCHES) == "counted over the whole batch"
    micro = nn.GradAccumulationCell(cell, MICRO_BATCHES)
    count_over_whole_batches(micro)
    total, sums = loss_and_gradients(micro, inputs, weights)
    unset_factors(cell)
    assert float(total.asnumpy()) / MICRO_BATCHES == pytest.approx(float(loss.asnumpy()), rel=1e-5)
    for one, other in zip(sums, gradients, strict=True):
        largest = numpy.abs(other.asnumpy()).max()
        assert numpy.abs(one.asnumpy() / MICRO_BATCHES - other.asnumpy()).max() <= 1e-5 * largest


def test_a_network_without_factors_is_cut_as_mindspore_does():
    cell, inputs = made("mean")
    assert count_over_batch(cell, *inputs, micro_batch_num=MICRO_BATCHES) == "as one batch"
    micro = nn.GradAccumulationCell(cell, MICRO_BATCHES)
    count_over_whole_batches(micro)
    assert type(micro) is nn.GradAccumulationCell


def test_what_is_taken_back_is_as_it_was():
    cell, inputs = made("sum_over_sum")
    count_over_batch(cell, *inputs, micro_batch_num=MICRO_BATCHES)
    micro = nn.GradAccumulationCell(cell, MICRO_BATCHES)
    count_over_whole_batches(micro)
    assert type(micro) is not nn.GradAccumulationCell and isinstance(micro, nn.GradAccumulationCell)
    unset_factors(cell)
    count_over_whole_batches(micro)
    assert type(micro) is nn.GradAccumulationCell


def test_another_form_is_said():
    cell, inputs = made("two_counts")
    with pytest.warns(UserWarning, match="Masked: mean of micro-batch means"):
        assert count_over_batch(cell, *inputs, micro_batch_num=MICRO_BATCHES) == "mean of micro-batch means"
