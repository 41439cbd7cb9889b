from ms_symtensor.report.text import numbered, run_text


def test_files_of_every_stage_are_named_once() -> None:
    files = [
        "plan.json",
        "layout_0.json",
        "layout_0.ckpt",
        "layout_1.json",
        "layout_1.ckpt",
        "layout_2.json",
        "shard.py",
    ]
    assert numbered(files) == "plan.json, layout_0.json … layout_2.json, layout_0.ckpt … layout_1.ckpt, shard.py"


def test_a_run_of_blocks_names_the_list_of_its_end_where_that_is_another_one() -> None:
    assert run_text("layers.0", "layers.3") == "layers.0 … 3"
    assert run_text("vision.13", "text.4") == "vision.13 … text.4"
    assert run_text("layers.2", "layers.2") == "layers.2"
