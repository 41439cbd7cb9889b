"""`symtensor audit`: what hand-written shard() calls cost, and whether they train what is meant."""

import argparse

from ms_symtensor.commands import options

TEXT = "what hand-written shard() calls cost, and whether they train what is meant"
EXAMPLES = ("symtensor audit net.py:factory --device-num 8",)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("factory", metavar="file.py:factory", help="a function that returns (cell, inputs)")
    command.add_argument("--device-num", type=int, required=True, help="number of NPUs")
    command.add_argument("--cluster", default=options.CLUSTER, help="a known cluster, or a file (default: %(default)s)")
    options.add_rank(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.bridge.apply.load_network import load_factory
    from ms_symtensor.bridge.judge.audit import audit
    from ms_symtensor.cluster.load import load as load_cluster
    from ms_symtensor.commands.shared import require_positive, show_found, warned
    from ms_symtensor.report.verdict_report import audit_json, audit_text
    from ms_symtensor.search.possible import require_devices

    cluster = warned(load_cluster(chosen.cluster))
    require_positive("--device-num", chosen.device_num)
    require_devices(cluster, chosen.device_num)
    cell, inputs = load_factory(chosen.factory)
    found = audit(cell, *inputs, device_num=chosen.device_num, cluster=chosen.cluster, rank=chosen.rank or 0)
    show_found(chosen, audit_json(found), audit_text(found))
    return 0 if found.verdict.passed else 1
