"""`symtensor traffic` on plans: the bytes of verify, files, refusals."""

import csv
import json
from pathlib import Path

import pytest

from ms_symtensor.cli import main
from ms_symtensor.program.program import Program
from ms_symtensor.report.programs import programs_of
from ms_symtensor.strategy.file import load, load_graph
from ms_symtensor.strategy.folder import read

SIZE = [
    "--num-layers",
    "4",
    "--global-batch-size",
    "16",
    "--seq-length",
    "512",
    "--device-num",
    "16",
    "--memory-limit",
    "8",
]
REQUESTS = {
    "data": ["llama2_7b", "--fix", "model_parallel=1", "--max", "pipeline_stages=1"],
    "tensor": ["llama2_7b", "--fix", "model_parallel=4", "--max", "pipeline_stages=1"],
    "stages": ["llama2_7b", "--fix", "pipeline_stages=4"],
    "experts": ["mixtral_8x7b", "--fix", "expert_parallel=8", "--memory-limit", "50"],
}  # fmt: skip
TOPOLOGY = ["--topology", "leaf=8,oversubscription=2"]


FEW = ("stages", "experts")
PARAMS = [name if name in FEW else pytest.param(name, marks=pytest.mark.matrix) for name in REQUESTS]


@pytest.fixture(scope="module", params=PARAMS)
def planned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plans") / "p"
    assert main(["plan", *SIZE, *REQUESTS[request.param][1:], "--out", str(out), REQUESTS[request.param][0]]) == 0
    return out


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    capsys.readouterr()
    assert main(["traffic", *map(str, arguments), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_bytes_are_those_that_verify_compares(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, planned, *TOPOLOGY)
    graph = load_graph(planned)
    assert graph is not None
    for program, said in zip(programs_of(load(planned), graph), found["verified"], strict=True):
        every = program.collectives(0 if isinstance(program, Program) else program.ranks.start)
        assert said["collectives"] == len(every) and said["size_B"] == sum(one.size_B for one in every)
        mine = [one for one in found["collectives"] if said["rank"] in one["ranks"]]
        assert sum(one["number"] * one["size_B"] for one in mine) >= max(one.size_B for one in every)
    rows = list(csv.DictReader((planned / "traffic.csv").open()))
    assert sum(float(row["size_B"]) for row in rows) == pytest.approx(found["total_B"])
    assert sum(one["size_B"] for one in found["sorts"]) == pytest.approx(found["total_B"])
    assert read(planned).differences == {}


def test_the_placement_is_never_worse_and_its_links_add_up(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, planned, *TOPOLOGY)
    assert found["most_loaded_link_s"] <= found["most_loaded_link_rank_order_s"]
    place = found["placement"]
    assert place["uplinks_B"] <= place["uplinks_rank_order_B"] and place["is_optimal"]
    links = list(csv.DictReader((planned / "links.csv").open()))
    up_B = sum(float(row["size_B"]) for row in links if row["link"] == "uplinks")
    crossing = [
        (i, j)
        for i, one in enumerate(place["leaf_of_node"])
        for j, other in enumerate(place["leaf_of_node"])
        if one != other
    ]
    assert up_B == pytest.approx(sum(found["node_B"][i][j] for i, j in crossing))
    assert max(float(row["time_s"]) for row in links) == pytest.approx(found["most_loaded_link_s"])


def test_the_rank_table_names_every_rank_once(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = tmp_path / "servers.txt"
    servers.write_text(
        "# ours\n" + "\n".join(f"10.0.0.{i} " + " ".join(f"10.0.{i}.{d}" for d in range(1, 9)) for i in (1, 2))
    )
    found = told(capsys, planned, *TOPOLOGY, "--servers", servers, "--out", tmp_path / "out")
    table = json.loads((tmp_path / "out" / "rank_table.json").read_text())
    assert (
        table["status"] == "completed"
        and table["server_count"] == "2"
        and found["files"]["rank_table"].endswith("out/rank_table.json")
    )
    devices = [device for server in table["server_list"] for device in server["device"]]
    assert sorted(int(device["rank_id"]) for device in devices) == list(range(16))
    assert [server["pod_ip"] for server in table["server_list"]] == ["10.0.0.1", "10.0.0.2"]


def test_the_parser_of_mindspore_takes_the_rank_table(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = pytest.importorskip("mindspore.train._utils")
    told(capsys, planned)
    found = parser.parse_hccl_file(str(planned / "rank_table.json"))
    assert sorted(found) == list(range(16)) and len(set(found.values())) == 16


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--topology", "leaf=12"], "multiple of 8"),
        (["--topology", "leaf=8,oversubscription=0.5"], "1 (none) or more"),
        (["--topology", "spine=2"], "leaf=RANKS"),
        (["--topology", "leaf=many"], "no number"),
        (["--servers", "nowhere.txt"], "check the path"),
    ],
)
def test_mistakes_are_one_line(
    planned: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["traffic", str(planned), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line and len(line) <= 450
