"""`symtensor audit`: what hand-written shard() calls cost, or a file for MindFormers, and whether they train what is meant."""

import argparse

from ms_symtensor.commands import options

TEXT = "what hand-written shard() calls cost, and whether they train what is meant"
EXAMPLES = (
    "symtensor audit net.py:factory --device-num 8",
    "symtensor audit --target mindformers-pynative pretrain.yaml --device-num 64",
)
TARGETS = ("mindspore", "mindformers-pynative")


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument(
        "factory",
        metavar="file.py:factory",
        help="a function that returns (cell, inputs); of mindformers-pynative a file for its trainer",
    )
    options.add_target(command, TARGETS, "a YAML of mindformers-pynative is traced at full size")
    command.add_argument("--device-num", type=int, help="number of NPUs; a YAML alone gives each rank one micro-batch")
    command.add_argument("--cluster", default=options.CLUSTER, help="a known cluster, or a file (default: %(default)s)")
    options.add_rank(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.commands.shared import require_positive
    from ms_symtensor.errors import InputError

    require_positive("--device-num", chosen.device_num)
    if chosen.target not in TARGETS:
        raise InputError(f"--target {chosen.target} is not audited: give one of {', '.join(TARGETS)}")
    if chosen.target == "mindformers-pynative":
        return _pynative(chosen)
    if chosen.device_num is None:
        raise InputError("audit needs --device-num: the number of NPUs that the network is for.")
    return _shards(chosen)


def _pynative(chosen: argparse.Namespace) -> int:
    from ms_symtensor.bridge.pynative.audit import audit
    from ms_symtensor.commands.options import require_read
    from ms_symtensor.commands.shared import show_found
    from ms_symtensor.report.pynative_audit_report import pynative_audit_json, pynative_audit_text

    require_read(chosen, "factory", "device_num")
    found = audit(chosen.factory, chosen.device_num)
    show_found(chosen, pynative_audit_json(found), pynative_audit_text(found))
    return 0


def _shards(chosen: argparse.Namespace) -> int:
    from ms_symtensor.bridge.apply.load_network import load_factory
    from ms_symtensor.bridge.judge.audit import audit
    from ms_symtensor.commands.shared import cluster_of, show_found
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.verdict_report import audit_json, audit_text
    from ms_symtensor.search.possible import require_devices

    cluster = cluster_of(chosen.cluster)
    require_devices(cluster, chosen.device_num)
    cell, inputs = load_factory(chosen.factory)
    with progress() as step:
        step("compile")
        found = audit(cell, *inputs, device_num=chosen.device_num, cluster=chosen.cluster, rank=chosen.rank or 0)
    show_found(chosen, audit_json(found), audit_text(found))
    return 0 if found.verdict.passed else 1
