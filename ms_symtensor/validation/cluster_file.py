"""A calibrated cluster as a file that `load` reads: everything of the original, and what each fitted number was fitted on."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from ms_symtensor.cluster import load as clusters
from ms_symtensor.validation.calibrate import Fit

DIGITS = 4  # of the fitted numbers: the rows know no more


def calibrated_yaml(name_or_path: str, fit: Fit, table: str) -> str:
    """The text of the cluster file `name_or_path` with the numbers of `fit`, which was made on `table`."""
    content = deepcopy(_content(name_or_path))
    on = f"{fit.rows} steps of {table}"
    content["name"] = f"{content['name']}_calibrated"
    content["description"] = (
        f"{' '.join(str(content['description']).split())}; calibrated on {on}: mean absolute percentage error "
        f"{fit.mape_before:.1%} before, {fit.mape_after:.1%} after"
    )
    for constant, value in zip(fit.constants, fit.values, strict=True):
        entry = _entry(content, constant.place)
        before = f"{constant.value:.{DIGITS}g}"
        entry["value"] = float(f"{value:.{DIGITS}g}")
        entry["source"] = f"fitted on {on}, from {before}: {' '.join(str(entry['source']).split())}"
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def _content(name_or_path: str) -> dict[str, Any]:
    known = name_or_path in clusters.known_clusters()
    path = Path(clusters.__file__).parent / f"{name_or_path}.yaml" if known else Path(name_or_path)
    content: dict[str, Any] = clusters.content_of(path)
    return content


def _entry(content: dict[str, Any], place: str) -> dict[str, Any]:
    """The entry at a place such as `device.cube_efficiency` or `levels[0].latency_s`."""
    found: Any = content
    for step in re.findall(r"\w+", place):
        found = found[int(step) if step.isdigit() else step]
    entry: dict[str, Any] = found
    return entry
