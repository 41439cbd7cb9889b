"""What MindSpore is known not to run of uniform layouts."""

import pytest

from ms_symtensor.cli import main

ADAPTERS = [
    "llama2_7b",
    "--num-layers=2",
    "--lora=8",
    "--device-num=8",
    "--global-batch-size=32",
    "--fix=micro_batch_num=4",
]
REJECTED = "MindSpore rejects micro-batches on one stage"


@pytest.mark.parametrize("how", ["--layouts=uniform", "--target=mindformers"])
def test_adapters_add_no_gradients_up_on_one_stage(capsys, tmp_path, how) -> None:
    """Where the table of the embedding is frozen: MindSpore finds no end of a micro-batch."""
    request = ["plan", *ADAPTERS, how, "--out", str(tmp_path)]
    assert main([*request, "--fix", "pipeline_stages=1"]) == 2
    assert REJECTED in capsys.readouterr().err
    assert main(request) == 0
    assert "pipeline_stages" in capsys.readouterr().out


def test_what_mindspore_rejects_is_priced_of_other_software_alone(capsys) -> None:
    request = ["estimate", *ADAPTERS, "--fix", "data_parallel=8"]
    assert main(request) == 2
    assert REJECTED in capsys.readouterr().err
    assert main([*request, "--runtime", "megatron"]) == 0
