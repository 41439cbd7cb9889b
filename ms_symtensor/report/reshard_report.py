"""The way from one plan to another, for people and for programs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.report.text import seconds, size, table
from ms_symtensor.reshard.proof import Proof
from ms_symtensor.reshard.reshard import Move, Resharding
from ms_symtensor.reshard.slices import Side
from ms_symtensor.reshard.transfers import Way
from ms_symtensor.serving.sides import Served
from ms_symtensor.strategy.plan import Plan

_SHOWN = 16


def reshard_json(found: Resharding, first: Plan | Served, second: Plan | Served, proof: Proof | None) -> dict[str, Any]:
    """The keys that `symtensor reshard --json` promises: seconds and bytes, those of a rank where not said otherwise."""
    received, whole, weights = found.received_B(), found.whole_B(), found.received_B(False)
    rank_of = {device: rank for rank, device in enumerate(found.device_of)}
    return {
        "model": first.model,
        "cluster": found.request.cluster.name,
        "from": _side_json(first, found.source),
        "to": _side_json(second, found.target),
        "device_num": found.device_num,
        "alignment": list(found.device_of),
        "time_s": found.time_s,
        "peak_memory_B": max(found.peak_B),
        "memory_limit_B": found.request.limit_B,
        "buckets": len(found.buckets),
        "bucket_B": found.bucket_B,
        "received_B": int(received.max()),
        "received_total_B": int(received.sum()),
        "gather_whole_B": int(whole.max()),
        "weights": _part_json(found, False),
        "optimizer_states": _part_json(found, True),
        "ranks": [
            {
                "device": device,
                "rank": rank_of.get(device),
                "received_B": int(received[device]),
                "weights_received_B": int(weights[device]),
                "gather_whole_B": int(whole[device]),
                "peak_memory_B": found.peak_B[device],
            }
            for device in range(found.device_num)
        ],
        "tensors": [_move_json(move) for move in found.moves],
        **({} if proof is None else {"proof": proof_json(proof)}),
    }


def proof_json(proof: Proof) -> dict[str, Any]:
    """What `--prove` found; bytes at the size of the proof, by device."""
    return {
        "equal": proof.holds,
        "compared": proof.compared,
        "different": list(proof.different),
        "moved_B": list(proof.received_B),
        "predicted_B": list(proof.predicted_B),
    }


def reshard_text(found: Resharding, first: Plan | Served) -> str:
    """Bytes, time and peak, and a table of the ways."""
    stays = sum(rank == device for rank, device in enumerate(found.device_of))
    lines = [
        f"{first.model}: {_side_text(found.source)} -> {_side_text(found.target)}, {found.device_num} devices of"
        f" {found.request.cluster.name}",
        "",
        table(_totals(found), ("received by a rank", "most", "mean", "gathering whole"), right=(1, 2, 3)),
        "",
        f"  time {seconds(found.time_s)}, {len(found.buckets)} bucket{'s' * (len(found.buckets) != 1)} of at most"
        f" {size(found.bucket_B)}",
        f"  peak {size(max(found.peak_B))} of {size(found.request.limit_B)}"
        + (", old slices stay" if found.request.keeps else ""),
        f"  {stays} of {len(found.device_of)} ranks stay on their device"
        + ("" if stays == len(found.device_of) else f": {_alignment(found)}"),
        "",
        table([_row(move) for move in found.moves], ("tensors", "of", "way", "received", "time"), right=(3, 4)),
    ]
    return "\n".join(lines)


def proof_text(proof: Proof) -> str:
    """What the processes found."""
    moved, predicted = sum(proof.received_B), sum(proof.predicted_B)
    if proof.holds:
        return f"Proved: {proof.compared} slices equal bit by bit, {moved:,} bytes moved as predicted"
    wrong = ", ".join(proof.different[:3]) or "none"
    return f"NOT proved: of {proof.compared} slices differ {wrong}; {moved:,} bytes moved, {predicted:,} predicted"


def _side_json(plan: Plan | Served, side: Side) -> dict[str, Any]:
    return {
        "model": plan.model,
        "device_num": side.rank_num,
        "pipeline_stages": side.stage_num,
        "replicas": side.replicas,
        "data_parallel": plan.data_parallel,
        "model_parallel": plan.model_parallel,
        "expert_parallel": plan.expert_parallel,
    }


def _part_json(found: Resharding, states: bool) -> dict[str, int]:
    received, whole = found.received_B(states), found.whole_B(states)
    return {
        "tensors": sum(len(unit) for move in found.moves if move.of.is_state == states for unit in move.of.units),
        "received_B": int(received.max()),
        "received_mean_B": int(received.mean()),
        "received_total_B": int(received.sum()),
        "gather_whole_B": int(whole.max()),
        "gather_whole_total_B": int(whole.sum()),
    }


def _move_json(move: Move) -> dict[str, Any]:
    pair = move.of.sample
    received = move.load.received_B * move.of.count
    return {
        "names": [one.source.name for unit in move.of.units for one in unit],
        "shape": list(pair.source.shape),
        "dtype": pair.source.dtype,
        "new_dtype": pair.target.dtype,
        "way": move.way.value,
        "ways_s": {way.value: time for way, time in move.ways.items()},
        "groups": [list(one.ranks) for one in move.transfers.gatherings],
        "received_B": int(received.max()),
        "received_total_B": int(received.sum()),
    }


def _side_text(side: Side) -> str:
    words = [f"{side.stage_num} stages"] if side.stage_num > 1 else []
    words += [f"{side.replicas} replicas"] if side.replicas > 1 else []
    return f"{side.rank_num} ranks" + (f" ({', '.join(words)})" if words else "")


def _totals(found: Resharding) -> list[tuple[str, ...]]:
    def row(name: str, received: NDArray[np.int64], whole: NDArray[np.int64]) -> tuple[str, ...]:
        return (name, size(int(received.max())), size(int(received.mean())), size(int(whole.max())))

    rows = [row("weights", found.received_B(False), found.whole_B(False))]
    if any(move.of.is_state for move in found.moves):
        rows.append(row("optimizer states", found.received_B(True), found.whole_B(True)))
    return rows


def _alignment(found: Resharding) -> str:
    shown = " ".join(map(str, found.device_of[:_SHOWN]))
    return f"ranks 0, 1, … on devices {shown}" + (" …" if len(found.device_of) > _SHOWN else "")


def _row(move: Move) -> tuple[str, ...]:
    one = move.of
    tensors = sum(len(unit) for unit in one.units)
    name = one.sample.source.name + (f" and {tensors - 1} more" if tensors > 1 else "")
    shape = " x ".join(map(str, one.sample.source.shape))
    types = dict.fromkeys((one.sample.source.dtype, one.sample.target.dtype))
    received = int((move.load.received_B * one.count).max())
    return (
        name,
        f"{shape} {' -> '.join(types)}",
        move.way.value + (f" of {len(move.transfers.gatherings[0].ranks)}" if move.way is Way.ALL_GATHER else ""),
        size(received) if received else "",
        seconds(move.ways[move.way]) if received else "",
    )
