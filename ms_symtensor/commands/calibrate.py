"""`symtensor calibrate`: fit a cluster's uncertain constants to measured steps."""

import argparse
from pathlib import Path

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError

TEXT = "fit a cluster's uncertain constants to measured steps"
EXAMPLES = ("symtensor calibrate measured.csv --cluster atlas_800t_a2 --out mine.yaml",)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.add_table(command)
    options.add_out(command, ": the cluster file (CLUSTER_calibrated.yaml)", "FILE")
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.cluster.load import SUFFIXES
    from ms_symtensor.commands.shared import cluster_of, show_found
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.validation_report import calibration_json, calibration_text
    from ms_symtensor.validation.calibrate import fit
    from ms_symtensor.validation.cluster_file import calibrated_yaml
    from ms_symtensor.validation.evaluate import of_cluster, priceable
    from ms_symtensor.validation.reading import read

    if chosen.out is not None and chosen.out.suffix not in SUFFIXES:
        raise InputError(
            f"--out is {chosen.out}: give a file {' or '.join(f'*{s}' for s in SUFFIXES)}, as --cluster takes it"
        )
    cluster = cluster_of(chosen.cluster)
    with progress() as step:
        step("prices of the rows")
        rows = priceable(of_cluster(read(chosen.table), cluster), cluster).cases
        step("constants")
        found = fit(rows, cluster)
    out = chosen.out or Path(f"{cluster.name}_calibrated.yaml")
    write_file(out, calibrated_yaml(chosen.cluster, found, chosen.table.name))
    show_found(chosen, calibration_json(found, cluster.name, str(out)), calibration_text(found, cluster.name, str(out)))
    return 0
