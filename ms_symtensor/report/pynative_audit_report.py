"""An audited PyNative file, for people and for programs."""

from typing import Any

from ms_symtensor.bridge.pynative.audit import PynativeAudit, StageTrace
from ms_symtensor.bridge.pynative.stand_in import SOURCES
from ms_symtensor.bridge.pynative.texts import ASSUMED
from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.targets.mindformers_pynative import NAME
from ms_symtensor.targets.mindformers_pynative.calls import Call, Unit

SHOWN = 12
"""Rows of long lists that are printed; JSON has them all."""


def pynative_audit_json(audit: PynativeAudit) -> dict[str, Any]:
    """What `symtensor audit --target mindformers-pynative --json` promises."""
    return {
        "target": NAME,
        "file": audit.file,
        "device_num": audit.device_num,
        "versions": audit.versions,
        "stages": [_stage_json(stage) for stage in audit.stages],
        "assumed": list(ASSUMED),
        "modelled_after": SOURCES,
        "trace_time_s": audit.time_s,
        "peak_rss_B": audit.peak_rss_B,
    }


def _call_json(call: Call) -> dict[str, Any]:
    return {"phase": call.phase, "kind": call.kind, "dtype": call.dtype, "bytes": call.size_B, "ranks": call.ranks}


def _stage_json(stage: StageTrace) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "rank": stage.rank,
        "layers": [list(chunk) for chunk in stage.layers],
        "micro_batches": stage.micro_batches,
        "collectives": [_call_json(call) | {"count": count} for call, count in sorted(stage.calls.items())],
        "modelled": [_call_json(one.call) | {"count_per_step": one.count, "by": one.by} for one in stage.modelled],
        "units": [
            {
                "module": unit.name,
                "parameters": len(unit.parameters),
                "whole": sum(p.whole for p in unit.parameters),
                "gathered_B": unit.gathered_B(),
                "held_elements": unit.held_elements(),
                "shards": unit.shards,
                "replicas": unit.replicas,
                "reshard_after_forward": unit.reshards,
            }
            for unit in stage.units
        ],
        "parameters_B": stage.parameters_B,
        "kept_B": stage.kept_B,
        "kept_weights_B": stage.kept_weights_B,
        "kept": [
            {"made_by": made_by, "dtype": dtype, "shape": list(shape), "bytes": size_B, "count": count}
            for made_by, dtype, shape, size_B, count in stage.kept
        ],
    }


def pynative_audit_text(audit: PynativeAudit) -> str:
    """The same in tables, a stage after the other."""
    versions = audit.versions
    lines = [
        f"{audit.file} on {audit.device_num} ranks: MindFormers {versions['mindformers']} on MindSpore "
        f"{versions['mindspore']}, hyper-parallel: {versions['hyper_parallel']}",
        f"  one micro-batch of one rank per stage, forward and backward on `meta`: {seconds(audit.time_s)}, "
        f"{size(audit.peak_rss_B)}",
    ]
    for stage in audit.stages:
        lines += ["", *_stage_text(stage)]
    used = sorted({one.by for stage in audit.stages for one in stage.modelled})
    lines += ["", "modelled, not MindFormers' code:"]
    lines += [f"  {by}: {SOURCES[by]}" for by in used] or ["  nothing"]
    lines += ["assumed:", *(f"  {text}" for text in ASSUMED)]
    return "\n".join(lines)


def _stage_text(stage: StageTrace) -> list[str]:
    layers = ", ".join(f"{first}-{last}" for first, last in stage.layers)
    head = ("phase", "collective", "dtype", "bytes", "ranks", "count")
    own = [
        (call.phase, call.kind, call.dtype, f"{call.size_B:,}", str(call.ranks), str(count))
        for call, count in sorted(stage.calls.items())
    ]
    lines = [
        f"stage {stage.stage} (rank {stage.rank}), layers {layers}, {stage.micro_batches} micro-batches",
        " called by MindFormers, in one micro-batch:",
        table(own, head, right=(3, 4, 5)) if own else "  no collective",
    ]
    if stage.modelled:
        rows = [(m.call.phase, m.call.kind, m.call.dtype, f"{m.call.size_B:,}", str(m.call.ranks), str(m.count), m.by)
                for m in sorted(stage.modelled, key=lambda m: -m.call.size_B * m.count)]  # fmt: skip
        lines += [" modelled, in one step:", table(rows[:SHOWN], (*head, "by"), right=(3, 4, 5))]
        lines += [f"  … and {len(rows) - SHOWN} more (--json)"] if len(rows) > SHOWN else []
    lines += [" units of fully_shard:", table(_unit_rows(stage.units), _UNIT_HEAD, right=(1, 2, 3, 4, 5))]
    lines += [
        f" parameters {size(stage.parameters_B)} before sharding; kept for the backward pass {size(stage.kept_B)} "
        f"of activations, {size(stage.kept_weights_B)} of weights"
    ]
    return lines


_UNIT_HEAD = ("module", "units", "parameters", "gathered", "shards", "replicas", "after forward")


def _unit_rows(units: tuple[Unit, ...]) -> list[tuple[str, ...]]:
    alike: dict[tuple[str, ...], int] = {}
    for unit in units:
        if not unit.parameters:
            continue
        row = (
            unit.name,
            str(len(unit.parameters)),
            size(unit.gathered_B()),
            str(unit.shards),
            str(unit.replicas),
            "resharded" if unit.reshards else "kept",
        )
        alike[row] = alike.get(row, 0) + 1
    return [(row[0], str(count), *row[1:]) for row, count in alike.items()]
