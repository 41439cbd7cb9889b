"""Two folders of MindSpore's profiler: python profiled.py DIR.

DIR/cpu: of three steps of a small network on this machine. DIR/npu: what MindSpore's own writers make of a timeline of three
steps of an NPU, which is made up here: computation, one AllReduce in part beside it, a Receive, and 10 us of a free device.
"""

import json
import sys
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor, nn
from mindspore.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from mindspore.profiler.analysis.parser.timeline_assembly_factory.trace_view_container import TraceViewContainer
from mindspore.profiler.analysis.parser.timeline_event.msprof_event import MsprofCompleteEvent, MsprofMetaEvent
from mindspore.profiler.analysis.parser.timeline_event.timeline_event_pool import TimelineEventPool
from mindspore.profiler.analysis.viewer.ascend_communication_viewer import AscendCommunicationViewer
from mindspore.profiler.analysis.viewer.ascend_kernel_details_viewer import AscendKernelDetailsViewer
from mindspore.profiler.analysis.viewer.ascend_memory_viewer import AscendMemoryViewer
from mindspore.profiler.analysis.viewer.ascend_step_trace_time_viewer import AscendStepTraceTimeViewer
from mindspore.profiler.common.constant import OpSummaryHeaders, ProfilerLevel

STEP_US = {"2": 400, "3": 100, "4": 110}
"""Computation of every step: the first one is slow."""
ALL_REDUCE_US, EXPOSED_US, RECEIVE_US, FREE_US = 60, 40, 20, 10
GAP_US = 10_000
"""From the begin of a step to that of the next one."""


def on_cpu(directory: Path) -> None:
    mindspore.set_device("CPU")
    network = nn.SequentialCell(nn.Dense(64, 64), nn.LayerNorm((64,)), nn.Dense(64, 8))
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    step = nn.TrainOneStepCell(loss, nn.AdamWeightDecay(network.trainable_params())).set_train()
    samples = Tensor(np.ones((16, 64), np.float32)), Tensor(np.zeros(16, np.int32))
    with profile(
        activities=[ProfilerActivity.CPU],
        profile_memory=True,
        schedule=schedule(wait=0, warmup=0, active=3, repeat=1, skip_first=1),
        on_trace_ready=tensorboard_trace_handler(str(directory)),
    ) as profiler:
        for _ in range(5):
            step(*samples)
            profiler.step()


def on_npu(directory: Path, memory: Path) -> None:
    folder = directory / "rank_0" / "host_1_ascend_ms"
    output, framework, raw = (folder / name for name in ("ASCEND_PROFILER_OUTPUT", "FRAMEWORK", "PROF_1"))
    for path in (output, framework, raw):
        path.mkdir(parents=True)
    (framework / "cpu_ms_memory_record_0.txt").write_bytes(memory.read_bytes())
    (raw / "communication.json").write_text(json.dumps(dict(_collectives())))
    container = _container()
    activities = [ProfilerActivity.CPU.value, ProfilerActivity.NPU.value]
    options = {
        "ascend_profiler_output_path": str(output), "ascend_ms_dir": str(folder), "framework_path": str(framework),
        "msprof_analyze_output_path": str(raw), "msprof_profile_output_path": str(raw), "activities": activities,
        "profiler_level": ProfilerLevel.Level1.value, "is_set_schedule": True, "jit_level": "O1", "profile_memory": True,
        "rank_id": 0,
    }  # fmt: skip
    headers, kernels = _kernels()
    data = {"trace_view_container": container, "op_summary": kernels, "op_summary_headers": headers}
    for viewer in (
        AscendStepTraceTimeViewer, AscendKernelDetailsViewer, AscendCommunicationViewer, AscendMemoryViewer,
    ):  # fmt: skip
        viewer(**options).save(data)


def _begins() -> dict[str, int]:
    return {step: GAP_US * (1 + number) for number, step in enumerate(STEP_US)}


def _container() -> TraceViewContainer:
    lanes: dict[str, list[tuple[str, int, int]]] = {
        "Computing": [],
        "Communication": [],
        "Communication(Not Overlapped)": [],
    }
    free, sent, steps = [], [], []
    for step, begin in _begins().items():
        compute = STEP_US[step]
        receive = begin + compute + EXPOSED_US
        reduce = begin + compute - (ALL_REDUCE_US - EXPOSED_US)
        lanes["Computing"].append(("Computing", begin, compute))
        lanes["Communication"] += [("c", reduce, ALL_REDUCE_US), ("c", receive, RECEIVE_US)]
        lanes["Communication(Not Overlapped)"].append(("c", begin + compute, EXPOSED_US + RECEIVE_US))
        free.append(("Free", receive + RECEIVE_US, FREE_US))
        sent += [("hcom_allReduce__1_0_1", reduce, ALL_REDUCE_US), ("hcom_receive__2_0_1", receive, RECEIVE_US)]
        steps.append((f"ProfilerStep#{step}", begin, GAP_US - 1))
    container = TraceViewContainer()
    container.add_event_pool(_pool(1, "Overlap Analysis", {**lanes, "Free": free}))
    container.add_event_pool(_pool(2, "HCCL", {"Plane 0": sent}))
    container.add_event_pool(_pool(3, "MindSpore", {"python": steps}))
    container.hardware_op_event = {0: []}
    return container


def _pool(pid: int, name: str, lanes: dict[str, list[tuple[str, int, int]]]) -> TimelineEventPool:
    pool = TimelineEventPool(pid)
    pool.add_event(MsprofMetaEvent({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}))
    for tid, (lane, events) in enumerate(lanes.items()):
        pool.add_event(
            MsprofMetaEvent({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": lane}})
        )
        for event, begin, length in events:
            pool.add_event(
                MsprofCompleteEvent({"name": event, "pid": pid, "tid": tid, "ts": str(begin), "dur": str(length)})
            )
    return pool


def _kernels() -> tuple[list[str], np.ndarray]:
    """A product of most of a step's computation, the optimizer's 20 us, and the AllReduce as a kernel."""
    names = (
        "STEP_ID",
        "DEVICE_ID",
        "OP_NAME",
        "OP_TYPE",
        "TASK_TYPE",
        "TASK_START_TIME",
        "TASK_DURATION",
        "TASK_WAIT_TIME",
    )
    headers = [OpSummaryHeaders[name].value for name in names]
    rows = []
    for step, begin in _begins().items():
        for type_, core, length in (
            ("MatMulV3", "AI_CORE", STEP_US[step] - 20),
            ("AdamWeightDecay", "AI_VECTOR_CORE", 20),
            ("hcom_allReduce_", "HCCL", ALL_REDUCE_US),
        ):
            rows.append((None, "0", f"Default/{type_}", type_, core, str(begin + 1), str(length), "0"))
    return headers, np.array(rows, dtype=[(header, object) for header in headers])


def _collectives() -> list[tuple[str, dict]]:
    found = []
    for step, begin in _begins().items():
        for name, length in (("hcom_allReduce", ALL_REDUCE_US), ("hcom_receive", RECEIVE_US)):
            times = {
                "Start Timestamp(us)": begin + 1, "Elapse Time(ms)": length / 1e3, "Transit Time(ms)": length / 2e3,
                "Wait Time(ms)": length / 4e3, "Synchronization Time(ms)": 0.0, "Idle Time(ms)": length / 4e3,
                "Wait Time Ratio": 1 / 3, "Synchronization Time Ratio": 0.0,
            }  # fmt: skip
            found.append(
                (f"{name}__{step}_0_1@99", {"Communication Time Info": times, "Communication Bandwidth Info": {}})
            )
    return found


if __name__ == "__main__":
    where = Path(sys.argv[1])
    on_cpu(where / "cpu")
    on_npu(where / "npu", next((where / "cpu").rglob("cpu_ms_memory_record_0.txt")))
