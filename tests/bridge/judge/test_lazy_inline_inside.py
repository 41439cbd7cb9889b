"""Networks with `@lazy_inline` on cells inside: with micro-batches it goes to the network as a whole, and cells of which other
weights train are compiled apart.
"""

from pathlib import Path

import pytest
from lazy_networks import of_frozen_and_lazy_blocks, of_lazy_blocks

from ms_symtensor.cli import main

NETWORKS = Path(__file__).parents[1] / "lazy_networks.py"


def plan(name, stages, interleave, folder):
    pins = {"pipeline_stages": stages, "micro_batch_num": 2, "pp_interleave_num": interleave}
    fixed = [word for key, number in pins.items() for word in ("--fix", f"{key}={number}")]
    assert main(["plan", f"{NETWORKS}:{name}", "--device-num", "4", *fixed, "--out", str(folder)]) == 0


@pytest.mark.parametrize("stages, interleave", [(2, 1), (2, 2), (1, 1)])
@pytest.mark.parametrize("name", ["of_lazy_blocks", "with_loss"])
def test_micro_batches_are_accepted(name, stages, interleave, tmp_path, capsys):
    plan(name, stages, interleave, tmp_path)
    assert main(["verify", str(tmp_path)]) == 0, capsys.readouterr().out


def test_gradients_of_blocks_beside_frozen_ones_are_summed(tmp_path, capsys):
    place = f"{NETWORKS}:of_frozen_and_lazy_blocks"
    assert main(["plan", place, "--device-num", "4", "--fix", "data_parallel=4", "--out", str(tmp_path)]) == 0
    assert main(["verify", str(tmp_path)]) == 0, capsys.readouterr().out
    names = {}
    exec((tmp_path / "shard.py").read_text(), names)
    network, _ = of_frozen_and_lazy_blocks()
    names["shard"](network)
    assert len({block.cell_init_args for block in network.blocks}) == 3


def test_the_written_code_moves_the_decorator(tmp_path):
    plan("of_lazy_blocks", 2, 1, tmp_path)
    names = {}
    exec((tmp_path / "shard.py").read_text(), names)
    network, _ = of_lazy_blocks()
    names["shard"](network)
    marked = [
        path for path, cell in network.cells_and_names() if "lazy_inline" in str(cell.__dict__.get("_cell_init_args"))
    ]
    assert marked == [""]
