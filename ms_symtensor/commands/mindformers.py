"""`symtensor mindformers`: a training file of MindFormers, better."""

import argparse
from typing import TYPE_CHECKING

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError

if TYPE_CHECKING:
    from ms_symtensor.cluster.topology import Cluster
    from ms_symtensor.report.training_report import Checked
    from ms_symtensor.targets.mindformers.better import Better

TEXT = "price a training file of MindFormers in graph mode, and write a better one"
EXAMPLES = (
    "symtensor mindformers train.yaml --cluster atlas_800t_a2 --device-num 64 -o planned.yaml",
    "symtensor mindformers train.yaml --target mindformers-pynative -o planned.yaml",
    "symtensor mindformers train.yaml --device-num 64 --pretrained-model-dir Qwen3-32B --json",
)


TARGETS = ("mindformers", "mindformers-pynative")


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("file", metavar="FILE.yaml", type=options.path, help="a training file of MindFormers")
    command.add_argument(
        "--pretrained-model-dir",
        type=options.path,
        metavar="DIR",
        help="a config.json or its folder, in the place of the file's pretrained_model_dir",
    )
    command.add_argument("--device-num", type=int, help="number of NPUs (default: the file's)")
    command.add_argument("--cluster", default=options.CLUSTER, help="a known cluster, or a file (default: %(default)s)")
    options.add_target(command, TARGETS, "a file for graph mode, or for PyNative")
    options.add_memory(command)
    options.add_pins(command)
    options.add_runtime(command)
    command.add_argument("-o", "--out", type=options.path, metavar="FILE", help="where to write: the planned file")
    command.add_argument(
        "--check",
        action="store_true",
        help="build MindFormers' own network with few blocks and the planned degrees, and audit it (takes MindFormers; minutes)",
    )
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.arguments import limits, memory_limit_B
    from ms_symtensor.commands.plan_pynative import mindformers_pynative
    from ms_symtensor.commands.shared import cluster_of, require_positive, show_found
    from ms_symtensor.cost.runtime import DEFAULT, runtime_of
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.training_report import check_json, check_text, training_json, training_text
    from ms_symtensor.search.constraints.request import Request
    from ms_symtensor.search.possible import require_devices
    from ms_symtensor.target_plans import free_layouts_s, kept_swap, model_of_config
    from ms_symtensor.targets.mindformers.better import better
    from ms_symtensor.targets.mindformers.training_file import read_training_file

    if chosen.target not in TARGETS:
        raise InputError(f"--target {chosen.target} has no such files: give one of {', '.join(TARGETS)}")
    if chosen.check and chosen.target == TARGETS[1]:
        raise InputError(
            "--check is of files in graph mode: `symtensor audit --target mindformers-pynative` traces others"
        )
    if chosen.target == TARGETS[1]:
        return mindformers_pynative(chosen)
    if chosen.check:
        from ms_symtensor.bridge.judge.training_file import require_mindformers

        require_mindformers()
    cluster = cluster_of(chosen.cluster)
    file = read_training_file(chosen.file, chosen.pretrained_model_dir)
    device_num = file.devices if chosen.device_num is None else chosen.device_num
    require_positive("--device-num", device_num)
    require_devices(cluster, device_num)
    if chosen.out is not None and chosen.out.exists() and chosen.out.samefile(chosen.file):
        raise InputError(f"--out is {chosen.out}, the file that is read: give another place")
    limit_B = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin)
    if chosen.memory_limit is None and file.memory_limit_B is not None:
        limit_B = min(limit_B, file.memory_limit_B)
    wanted = kept_swap(limits(chosen.fix, chosen.max), file.swaps)
    request = Request(
        cluster, device_num, file.config.batch_size, file.config.seq_length, limit_B, file.config.name, {}, wanted,
        runtime=runtime_of(chosen.runtime or DEFAULT, chosen.hide),
    )  # fmt: skip
    with progress() as step:
        found = better(
            file, request, lambda config, asked, told: free_layouts_s(model_of_config(config), asked, told), step
        )
    if chosen.out is not None:
        line_end = "\r\n" if b"\r\n" in chosen.file.read_bytes() else "\n"
        write_file(chosen.out, found.text.replace("\n", line_end))
    out = None if chosen.out is None else str(chosen.out)
    data, text = training_json(found, out), training_text(found, out)
    if not chosen.check:
        show_found(chosen, data, text)
        return 0
    checked = _checked(chosen, found, cluster)
    show_found(chosen, data | {"check": check_json(checked)}, f"{text}\n\n{check_text(checked)}")
    return 0 if checked.audit.verdict.passed else 1


def _checked(chosen: argparse.Namespace, found: "Better", cluster: "Cluster") -> "Checked":
    """The audit of the first rank of the last stage, which has blocks, head and loss."""
    import tempfile
    from pathlib import Path

    from ms_symtensor.bridge.judge.training_file import audit_training_file
    from ms_symtensor.report.training_report import Checked
    from ms_symtensor.targets.mindformers.reduced import reduced

    with tempfile.TemporaryDirectory() as folder:
        small = reduced(found.file, found.layout, Path(folder), chosen.pretrained_model_dir)
        devices = small.layout.device_num
        rank = devices - devices // small.layout.stages.number
        return Checked(small.blocks, audit_training_file(small, rank, cluster))
