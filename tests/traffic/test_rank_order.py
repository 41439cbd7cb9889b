"""The order of stages and mesh axes over the levels of a cluster: `symtensor traffic --rank-order`."""

import json
import math
from pathlib import Path

import pytest
import yaml

from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.strategy.file import load as load_plan
from ms_symtensor.traffic.exchanged import Message
from ms_symtensor.traffic.rank_order import Axis, axes_of, positions_of

REQUEST = [
    "llama2_7b", "--num-layers", "4", "--seq-length", "1024", "--global-batch-size", "256", "--device-num", "32",
    "--fix", "pipeline_stages=2", "--fix", "model_parallel=1", "--fix", "recompute=0",
]  # fmt: skip


def test_positions_are_an_order_of_the_digits_of_ranks() -> None:
    stages, outer, inner = axes = (Axis("stages", 2, 8), Axis("mesh", 4, 2), Axis("mesh", 2, 1))
    assert positions_of(axes, axes) == tuple(range(16))
    found = positions_of(axes, (outer, stages, inner))
    assert sorted(found) == list(range(16)) and found[8] == 2 and found[2] == 4 and found[1] == 1


def test_axes_are_cut_where_groups_and_levels_begin() -> None:
    a3 = load("atlas_800t_a3")
    groups = (
        Message("forward", "AllReduce", (0, 1, 2, 3), 1, 1),
        Message("backward", "AllReduce", (0, 4, 8, 12), 1, 1),
    )
    found = axes_of(groups, a3, 32, 2)
    assert [axis.size for axis in found] == [2, 4, 2, 2] and [axis.name for axis in found[:2]] == ["stages", "mesh"]
    assert math.prod(axis.size for axis in found) == 32


@pytest.mark.matrix
def test_three_levels_where_another_order_is_faster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a3 = yaml.safe_load((Path("ms_symtensor") / "cluster" / "atlas_800t_a3.yaml").read_text())
    a3["name"], a3["levels"][1]["ranks"]["value"] = "small_superpods", 16
    cluster, out = tmp_path / "three.yaml", tmp_path / "plan"
    cluster.write_text(yaml.safe_dump(a3))
    assert main(["plan", *REQUEST, "--cluster", str(cluster), "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["traffic", str(out), "--rank-order", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rank_order"]
    assert found["rank_order_s"] == pytest.approx(load_plan(out).prediction.step_time_s, rel=1e-9)
    assert found["step_s"] < 0.99 * found["rank_order_s"] and found["is_exact"]
    table = json.loads((out / "rank_table.json").read_text())
    ranks = [int(one["rank_id"]) for server in table["server_list"] for one in server["device"]]
    assert [found["positions"][rank] for rank in ranks] == list(range(32))
    parser = pytest.importorskip("mindspore.train._utils")
    assert sorted(parser.parse_hccl_file(str(out / "rank_table.json"))) == list(range(32))
