from ms_symtensor.report.text import numbered


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
