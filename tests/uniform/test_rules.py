"""What MindSpore is known not to run of uniform layouts."""

from ms_symtensor.cli import main


def test_adapters_add_no_gradients_up_on_one_stage(capsys, tmp_path) -> None:
    """Where the table of the embedding is frozen: MindSpore finds no end of a micro-batch."""
    request = [
        "plan",
        "llama2_7b",
        "--num-layers",
        "2",
        "--lora",
        "8",
        "--device-num",
        "8",
        "--global-batch-size",
        "32",
    ]
    pins = ["--layouts", "uniform", "--fix", "micro_batch_num=4", "--out", str(tmp_path)]
    assert main([*request, *pins, "--fix", "pipeline_stages=1"]) == 2
    assert "MindSpore rejects micro-batches on one stage" in capsys.readouterr().err
    assert main([*request, *pins]) == 0
    assert "pipeline_stages" in capsys.readouterr().out
