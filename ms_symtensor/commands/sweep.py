"""`symtensor sweep`: a plan at every point of a grid of devices, clusters, batches and changed clusters."""

import argparse

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError
from ms_symtensor.streams import notice

TEXT = "a plan at every point of a grid: devices, clusters, batches, changed numbers of a cluster"
EXAMPLES = (
    "symtensor sweep llama2_70b --device-num 32..256 --cluster atlas_800t_a2,atlas_800t_a3 --global-batch-size 512 --out sweep",
    "symtensor sweep llama2_7b --device-num 8..64 --weak --global-batch-size 64 --power --out sweep/weak",
    "symtensor sweep llama2_7b --device-num 32 --vary levels.roce.bandwidth_Bps=0.5,1,2 --out sweep/roce",
)

LISTS = {
    "device_num": ("8..64", "number of NPUs: several (8,24), or doublings (8..64)"),
    "cluster": ("A,B", "known clusters, or files (default: %(default)s)"),
    "global_batch_size": ("N,M", "samples of a step on all devices (zoo: 16)"),
    "seq_length": ("N,M", "tokens of a sample (zoo: the model's)"),
}
"""Options of other commands that take several here: how they are shown."""


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.add_model(command)
    options.add_request(command)
    options.add_runtime(command)
    command.add_argument("--device-num", required=True)
    for action in command._actions:
        if action.dest in LISTS:  # in the place of one number or name
            action.type, (action.metavar, action.help) = None, LISTS[action.dest]
    scaling = command.add_mutually_exclusive_group()
    scaling.add_argument("--strong", action="store_true", help="the same batch on all numbers of devices (default)")
    scaling.add_argument(
        "--weak", action="store_true", help="the batch is that of the fewest devices, and grows with them"
    )
    command.add_argument(
        "--vary", action="append", default=[], metavar="PATH=0.5,1,2", help="multiply a number of the clusters' files"
    )
    command.add_argument("--power", action="store_true", help="tokens per joule: the clusters must have device.power_W")
    command.add_argument(
        "--cost-per-hour",
        type=float,
        metavar="X",
        help="price of a device's hour (default: the cluster's, if it has one)",
    )
    command.add_argument("--jobs", type=int, metavar="N", help="processes (default: one for each core)")
    options.add_out(command, ", and to go on from (default: sweep/MODEL)")
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    import json
    import os
    from pathlib import Path

    from ms_symtensor.arguments import limits
    from ms_symtensor.commands.shared import require_positive, show_found, warned
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.models import asked
    from ms_symtensor.report.progress import counted
    from ms_symtensor.sweep.curves import rises, with_gains
    from ms_symtensor.sweep.points import factors, numbers, points
    from ms_symtensor.sweep.run import cluster_of, options_of
    from ms_symtensor.sweep.store import rows
    from ms_symtensor.sweep.tell import sweep_csv, sweep_json, sweep_page, sweep_text

    for option, value in (("--cost-per-hour", chosen.cost_per_hour), ("--jobs", chosen.jobs)):
        require_positive(option, value)
    clusters = [name.strip() for name in chosen.cluster.split(",")]
    batches = numbers("--global-batch-size", chosen.global_batch_size) if chosen.global_batch_size else (None,)
    sequences = numbers("--seq-length", chosen.seq_length) if chosen.seq_length else (None,)
    every = points(
        clusters, numbers("--device-num", chosen.device_num), batches, sequences, factors(chosen.vary), chosen.weak
    )
    limits(chosen.fix, chosen.max)
    for one in {(one.cluster, one.factors): one for one in every}.values():
        cluster_of(one)
    for point in {one.cluster: one for one in every}.values():
        cluster = warned(cluster_of(point))
        if chosen.power and cluster.device.power_W is None:
            raise InputError(
                f"cluster {cluster.name} has no device.power_W: leave --power out, or give it in a file"
                f" (based_on: {cluster.name})"
            )
    shared = options_of(chosen)
    first = asked({**shared, "global_batch_size": every[0].global_batch_size, "seq_length": every[0].seq_length})
    model = first.name
    for note in first.notes:
        notice(note)
    out = chosen.out or Path("sweep") / Path(chosen.model.partition(":")[0]).stem
    jobs = chosen.jobs or os.cpu_count() or 1
    with counted("points", len(every)) as told:
        found, known = rows(every, shared, out, jobs, lambda done, _: told(done))
    found = with_gains(every, found)
    if all("why" in row for row in found):
        raise InputError(f"no point of the sweep has a plan; the first: {found[0]['why']}"[:440])
    reasons = rises(every, found)
    data = sweep_json(model, every, found, reasons, known)
    contents = {
        "sweep.json": json.dumps({name: value for name, value in data.items() if name != "resumed"}, indent=1) + "\n",
        "sweep.csv": sweep_csv(every, found),
        "sweep.html": sweep_page(model, every, found, reasons),
    }
    for name, content in contents.items():
        write_file(out / name, content)
    gone_on = f" ({known} points were known)" if known else ""
    text = f"{sweep_text(model, every, found, reasons)}\n\nWritten to {out}: {', '.join(contents)}{gone_on}"
    show_found(chosen, data, text)
    return 0
