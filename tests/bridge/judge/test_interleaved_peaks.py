"""What stages with several runs of blocks keep, blocks recomputed in part included, against MindSpore's compiled programs."""

from ms_symtensor.bridge.judge.verify_stages import verify_stages
from ms_symtensor.cli import main
from ms_symtensor.strategy.file import load, load_graph

PINS = {"pipeline_stages": 2, "pp_interleave_num": 2, "micro_batch_num": 4, "data_parallel": 2}


def test_peaks_are_those_of_the_compiled_program(tmp_path):
    fixed = [word for name, number in PINS.items() for word in ("--fix", f"{name}={number}")]
    size = ["--num-layers", "9", "--seq-length", "1024", "--global-batch-size", "8", "--device-num", "4"]
    assert main(["plan", "llama2_7b", *size, *fixed, "--memory-limit", "14", "--out", str(tmp_path)]) == 0
    plan = load(tmp_path)
    assert any(stage.settings.recompute for stage in plan.stages)
    found = verify_stages(plan, load_graph(tmp_path))
    assert len(found) == 2 and all(verdict.passed for verdict in found)
    for verdict in found:
        predicted_B, compiled_B = verdict.comparison.predicted_activations_B, verdict.comparison.compiled_activations_B
        assert abs(predicted_B / compiled_B - 1) <= 0.01
