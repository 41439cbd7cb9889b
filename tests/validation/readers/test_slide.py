import pytest

from ms_symtensor.validation.readers.slide import BLOCKS, DEVICES, slide_configuration


@pytest.mark.parametrize("data_parallel, model_parallel", [(8, 8), (32, 2), (64, 1)])
def test_its_three_lines_differ_in_nothing_but_their_degrees(data_parallel, model_parallel) -> None:
    spread = slide_configuration(data_parallel, model_parallel)
    assert spread.device_num == DEVICES
    assert spread.global_batch_size == 512
    assert spread.model.num_layers == BLOCKS
    assert spread.model.experts is not None and spread.model.dense_layers == 3
    assert spread.sequence_parallel == (model_parallel > 1)
