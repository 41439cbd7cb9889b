"""report.html: the numbers of plan.json, one file without a network, beside a plan whose digests still hold."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from benchmarks.validation import figures
from ms_symtensor.cli import main
from ms_symtensor.cost.stage_time import StageSeconds, pipelined_step_s
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.report.html.timeline_chart import timeline_chart
from ms_symtensor.report.html.trust import ACCURACY
from ms_symtensor.strategy.folder import read
from ms_symtensor.strategy.record import PROVED_FILE, VERIFIED_FILE, record, recorded
from ms_symtensor.timeline.replay import replay

ROOT = Path(__file__).parents[2]
SIZE = ["--global-batch-size", "8", "--seq-length", "512", "--device-num", "4"]
VOID = {"meta", "link", "br"}
NOT_SHOWN = ("version", "recompute", "layers", "strategies", "bound_s", "cluster_file", "graph_hash")
"""What of plan.json stands in tables of words, or in the list of layouts that were ruled out."""


class Page(HTMLParser):
    """Exact numbers by key, and whether elements are closed as they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.numbers: dict[str, float] = {}
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if (key := said.get("data-key")) and (value := said.get("value")):
            assert self.numbers.setdefault(key, float(value)) == float(value)
        self.addresses += [said[name] or "" for name in ("src", "href") if name in said]
        self.ids += [said["id"] or ""] if "id" in said else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module", params=["one", "stages"])
def reported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plans") / "p"
    stages = ["--num-layers", "4", "--fix", "pipeline_stages=2", "--fix", "pp_interleave_num=2"]
    more = stages if request.param == "stages" else ["--num-layers", "2", "--fix", "micro_batch_num=1", "--pareto"]
    assert main(["plan", "llama2_7b", *SIZE, *more, "--out", str(out)]) == 0
    assert main(["report", str(out)]) == 0
    return out


def test_virtual_stages_are_told_in_model_chunks(reported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_interleaved = len(json.loads((reported / "plan.json").read_text())["stages"]) == 2
    assert (" 2 of 2 chunks, " in (reported / "report.txt").read_text()) == is_interleaved
    assert main(["explain", str(reported)]) == 0
    assert ("sum over model chunks (in flight * kept)" in capsys.readouterr().out) == is_interleaved


def numbers(data: object, key: str = "") -> dict[str, float]:
    """The numbers of plain data, by their path."""
    if isinstance(data, bool) or data is None or isinstance(data, str):
        return {}
    if isinstance(data, int | float):
        return {key: float(data)}
    items = data.items() if isinstance(data, dict) else enumerate(data)  # type: ignore[arg-type]
    found: dict[str, float] = {}
    for name, value in items:
        if name not in NOT_SHOWN:
            found |= numbers(value, f"{key}.{name}" if key else str(name))
    return found


def test_every_number_of_the_plan_is_that_of_the_page(reported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Page((reported / "report.html").read_text())
    plan = json.loads((reported / "plan.json").read_text())
    said = numbers(plan)
    for key in [key for key in page.numbers if key in said]:
        assert page.numbers[key] == said[key], key
    shown = {key for key in said if not key.startswith(("search.considered.", "stages."))}
    assert shown <= page.numbers.keys()
    assert any(key.startswith("search.considered.") for key in page.numbers)
    assert main(["report", str(reported), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for key in (
        "step_time_s",
        "peak_memory_B",
        "tokens_per_s_device",
        "mfu",
        "tflops_device",
        "data_parallel",
        "pipeline_stages",
    ):
        assert page.numbers[key] == found[key], key
    assert found["report"].endswith("report.html") and found["report_B"] == (reported / "report.html").stat().st_size
    assert page.numbers["step_time_s"] == pytest.approx(sum(plan["prediction"]["time_s"].values()))


def test_the_page_is_one_file_below_a_megabyte(reported: Path) -> None:
    text = (reported / "report.html").read_text()
    page = Page(text)
    assert page.open == [] and len(text.encode()) < 1_000_000
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)
    assert ("pareto" in page.ids) is (reported / "pareto.json").exists()
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttpRequest", text)
    for word in ("timeline", "memory", "blocks", "alternatives", "collectives", "trust", "formulas", "files"):
        assert word in page.ids
    assert (
        "<math " in text
        and "--fix pipeline_stages=" in text
        and "prefers-color-scheme: dark" in text
        and "@media print" in text
    )


def test_the_same_plan_gives_the_same_bytes_and_stays_unedited(reported: Path) -> None:
    before = (reported / "report.html").read_bytes(), (reported / "timeline.json").read_bytes()
    assert main(["report", str(reported)]) == 0
    assert ((reported / "report.html").read_bytes(), (reported / "timeline.json").read_bytes()) == before
    assert read(reported).differences == {}


def test_what_was_verified_and_proved_is_told_of_this_plan_only(reported: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(reported, tmp_path / "mine"))
    verdict = {
        "accepted": True, "reason": "", "gradients_synchronised": True, "mindspore": "2.10.0", "files": {"differ": {}},
        "collectives": {"predicted": 7, "compiled": 7, "equal": True, "differences": []},
    }  # fmt: skip
    proof = {"equal": True, "ranks": 4, "loss_rel_error": 0.0, "grad_rel_error_max": 3e-7, "parameters_checked": 39}
    assert record(read(mine), VERIFIED_FILE, verdict) == record(read(mine), PROVED_FILE, proof) == ""
    assert main(["report", str(mine)]) == 0
    text = (mine / "report.html").read_text()
    assert "equal in kind, ranks and bytes" in text and "4 processes beside one" in text and "✓ proved" in text
    of_another = (mine / VERIFIED_FILE).read_bytes()
    assert main(["plan", "llama2_7b", "--num-layers", "1", *SIZE, "--out", str(mine)]) == 0
    there = {file.name for file in mine.iterdir()}
    assert not there & {"report.html", "timeline.json", VERIFIED_FILE, PROVED_FILE, "pareto.json"}
    (mine / VERIFIED_FILE).write_bytes(of_another)
    assert recorded(read(mine), VERIFIED_FILE) is None


def test_the_accuracy_is_that_of_the_documents() -> None:
    page = (ROOT / "docs" / "results" / "validation.md").read_text(encoding="utf-8")
    assert json.loads(ACCURACY.read_text(encoding="utf-8"))["figures"] == figures(page)


def test_a_folder_without_a_graph_is_refused(
    reported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = Path(shutil.copytree(reported, tmp_path / "mine"))
    (mine / "graph.json").unlink()
    capsys.readouterr()
    assert main(["report", str(mine), "--edited"]) == 2
    assert "no graph.json" in capsys.readouterr().err


@pytest.mark.matrix
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_a_browser_says_nothing_against_it(reported: Path) -> None:
    """The console of a headless Chromium without a network stays empty, and what the script makes is there."""
    done = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--dump-dom",
            "--host-resolver-rules=MAP * ~NOTFOUND", (reported / "report.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    assert 'tabindex="0"' in done.stdout


def test_a_timeline_of_many_passes_stays_small() -> None:
    stages = [StageSeconds(1.0, 2.0, 0.5, 0.5)] * 32
    step_s = pipelined_step_s(stages, 256)
    text = timeline_chart(replay(stages, PipelineSchedule(256), step_s), True).text
    assert len(text) < 300_000 and "forward and backward in turn" in text and "waiting" in text
