"""msrun's cluster reads the rank table, and gives its processes the ranks that stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ms_symtensor.traffic.rank_order import Axis, positions_of
from ms_symtensor.traffic.rank_table import Server, rank_table

pytest.importorskip("mindspore")

SCRIPT = """
import os
import mindspore as ms
from mindspore.communication import get_rank, init

ms.set_device("CPU")
init()
print("DEVICE", os.environ["DEVICE_ID"], "RANK", get_rank(), flush=True)
"""


@pytest.mark.matrix
def test_processes_have_the_ranks_of_the_table(tmp_path: Path) -> None:
    from ms_symtensor.bridge.proof.launch import _free_port

    outer, inner = axes = (Axis("stages", 2, 2), Axis("mesh", 2, 1))
    positions = positions_of(axes, (inner, outer))
    assert positions == (0, 2, 1, 3)
    (tmp_path / "script.py").write_text(SCRIPT)
    addresses = tuple(f"198.19.0.{device}" for device in range(1, 5))
    table = tmp_path / "rank_table.json"
    table.write_text(rank_table([Server("127.0.0.1", addresses)], [0], 4, positions))
    program = Path(sys.executable).parent
    done = subprocess.run(
        [program / "msrun", "--worker_num=4", "--local_worker_num=4", f"--master_port={_free_port()}", "--join=True",
         "--log_dir=logs", f"--rank_table_file={table}", "script.py"],
        cwd=tmp_path, env={**os.environ, "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    logs = "".join(log.read_text() for log in (tmp_path / "logs").glob("worker_*.log"))
    found = {int(device): int(rank) for device, rank in re.findall(r"DEVICE (\d) RANK (\d)", logs)}
    assert {rank: device for device, rank in found.items()} == dict(enumerate(positions))
