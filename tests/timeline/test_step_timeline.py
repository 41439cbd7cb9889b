"""A plan's step over time adds up to its price: seconds, bytes, and the trace."""

import json
from pathlib import Path

import pytest

from ms_symtensor.cli import main
from ms_symtensor.strategy.file import load, load_graph
from ms_symtensor.timeline.replay import Kind
from ms_symtensor.timeline.step import Step, step_of
from ms_symtensor.timeline.trace import trace_of

ONE_CHUNK, TWO_CHUNKS = ["--fix", "pp_interleave_num=1"], ["--fix", "pp_interleave_num=2"]
REQUESTS = {
    "one_stage": ["llama2_7b", "--num-layers", "2", "--device-num", "8"],
    "micro_batches": ["llama2_7b", "--num-layers", "2", "--device-num", "4", "--fix", "micro_batch_num=4"],
    "stages": ["llama2_7b", "--num-layers", "5", "--device-num", "4", "--fix", "pipeline_stages=2", *ONE_CHUNK],
    "chunks": ["llama2_7b", "--num-layers", "8", "--device-num", "4", "--fix", "pipeline_stages=2", *TWO_CHUNKS],
    "experts": ["mixtral_8x7b", "--num-layers", "2", "--device-num", "8", "--fix", "expert_parallel=4"],
    "eager": ["llama2_7b", "--num-layers", "2", "--device-num", "8", "--runtime", "megatron"],
    "offload": ["llama2_7b", "--num-layers", "2", "--device-num", "2", "--fix", "swap_optimizer=yes"],
}  # fmt: skip


LONG = ("experts", "offload", "micro_batches")
PARAMS = [pytest.param(name, marks=pytest.mark.matrix) if name in LONG else name for name in REQUESTS]


@pytest.fixture(scope="module", params=PARAMS)
def step(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Step:
    out = str(tmp_path_factory.mktemp("plans") / request.param)
    size = ["--global-batch-size", "8", "--seq-length", "512"]
    assert main(["plan", *REQUESTS[request.param], *size, "--out", out]) == 0
    graph = load_graph(out)
    assert graph is not None
    return step_of(load(out), graph)


def test_spans_fill_the_step(step: Step) -> None:
    for lane in step.timeline.stages:
        assert sum(span.time_s for span in lane) == pytest.approx(step.plan.prediction.step_time_s, rel=1e-9)
    assert step.timeline.replayed_s == pytest.approx(step.plan.prediction.step_time_s, rel=0.05)


def test_operators_add_up_to_their_passes(step: Step) -> None:
    if step.plan.runtime != "mindspore_graph":
        return  # a run-time that hides communication takes less
    for number, spent in enumerate(step.seconds):
        update_s = spent.spent_s["end", "optimizer"]
        told_s = sum(one.time_s for one in step.operators[number])
        assert told_s + update_s == pytest.approx(spent.each_s + spent.once_s, rel=1e-9)


def test_the_fullest_stage_is_as_full_as_the_plan_says(step: Step) -> None:
    assert max(one.peak_B for one in step.memory) == step.plan.prediction.peak_memory_B
    for one in step.memory:
        assert sum(alive.size_B for alive in one.alive) == one.activations_B
        times = [at_s for at_s, _ in one.curve]
        assert times == sorted(times) and times[-1] == pytest.approx(step.timeline.step_s)


def test_the_trace_keeps_to_its_format_and_fills_the_step(step: Step) -> None:
    """Fields of complete events, counters and metadata as the Trace Event Format has them."""
    trace = json.loads(json.dumps(trace_of(step), allow_nan=False))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    lanes: dict[tuple[int, int], float] = {}
    ended_ns: dict[tuple[int, int], int] = {}
    for event in trace["traceEvents"]:
        assert (
            {"ph", "name", "pid", "tid"} <= event.keys()
            and isinstance(event["pid"], int)
            and isinstance(event["tid"], int)
        )
        assert event["ph"] in ("X", "C", "M") and isinstance(event["name"], str)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name")
            continue
        assert isinstance(event["cat"], str) and event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
            continue
        assert event["dur"] >= 0
        lane = event["pid"], event["tid"]
        assert event["ts"] == pytest.approx(lanes.get(lane, 0.0), abs=1e-3)
        lanes[lane] = event["ts"] + event["dur"]
        begin_ns, length_ns = int(event["ts"] * 1000), int(event["dur"] * 1000)  # as Perfetto reads it
        assert begin_ns == ended_ns.get(lane, 0)
        ended_ns[lane] = begin_ns + length_ns
    for (_, thread), end_us in lanes.items():
        if thread == 0 or step.plan.runtime == "mindspore_graph":
            assert end_us == pytest.approx(1e6 * step.plan.prediction.step_time_s, rel=1e-9)


def test_stages_wait_where_there_are_several(step: Step) -> None:
    waits = any(span.kind is Kind.WAIT for lane in step.timeline.stages for span in lane)
    assert waits or len(step.timeline.stages) == 1


def test_a_plan_of_other_numbers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p"
    assert (
        main(["plan", "gpt2_xl", "--num-layers", "1", "--device-num", "2", "--seq-length", "64", "--out", str(out)])
        == 0
    )
    data = json.loads((out / "plan.json").read_text())
    data["prediction"]["time_s"]["compute"] *= 2
    (out / "plan.json").write_text(json.dumps(data))
    capsys.readouterr()
    assert main(["report", str(out), "--edited"]) == 2
    assert "plan again" in capsys.readouterr().err
    assert not (out / "report.html").exists()
