"""What the pipeline stages of a plan hold and exchange, and what MindSpore's compiler said of each, for people and programs."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ms_symtensor.program.program import COLLECTIVES
from ms_symtensor.program.stage_memory import stage_activation_peak_B, stage_in_flight
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.report.text import run_text, size, table
from ms_symtensor.report.verdict_report import verdict_json, verdict_text
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph, TensorType

if TYPE_CHECKING:  # plans are reported without what talks to the compiler
    from ms_symtensor.bridge.judge.verify import Verdict


def stages_text(plan: Plan, graph: Graph, programs: Sequence[StageProgram]) -> str:
    """One row for each stage: its blocks, and of its first rank the bytes and what it exchanges in a step."""
    names = graph.blocks
    rows = []
    for program, stage in zip(programs, plan.stages, strict=True):
        runs = program.pipeline.layers[program.stage]
        found = Counter(c.kind in COLLECTIVES for c in program.collectives(program.ranks.start))
        weights_B = sum(TensorType(p.slice_shape, p.dtype).size_B for p in program.parameters.values())
        rows.append(
            (
                str(program.stage),
                f"{program.ranks.start} … {program.ranks[-1]}",
                ", ".join(run_text(names[run.start], names[run.stop - 1]) for run in runs),
                str(len(stage.settings.recompute)),
                f"{stage_in_flight(program):g}",
                size(weights_B),
                size(stage_activation_peak_B(program)),
                str(found[True]),
                str(found[False]),
            )
        )
    head = ("stage", "ranks", "blocks", "recomputed", "in flight", "parameters", "activations", "collectives", "sends")
    return table(rows, head, right=(3, 4, 5, 6, 7, 8))


def verdicts_json(verdicts: Sequence["Verdict"]) -> dict[str, Any]:
    """The keys of `verdict_json`, over the ranks of all stages: counts are sums, bytes those of the largest stage. `stages`
    has each of them.
    """
    each = [verdict_json(verdict) for verdict in verdicts]

    def total(key: str, part: str) -> int | None:
        found: list[int] = [one[key][part] for one in each if one[key][part] is not None]
        if len(found) < len(each):
            return None
        return sum(found) if key == "collectives" else max(found)

    return {
        "accepted": all(v.accepted for v in verdicts),
        "reason": "; ".join(f"rank {v.rank}: {v.reason}" for v in verdicts if v.reason),
        "gradients_synchronised": all(v.synchronised for v in verdicts),
        "unsynchronised": [name for v in verdicts for name in v.unsynchronised],
        "collectives": {
            "predicted": total("collectives", "predicted"),
            "compiled": total("collectives", "compiled"),
            "equal": all(one["collectives"]["equal"] for one in each),
            "differences": [f"rank {one['rank']}: {d}" for one in each for d in one["collectives"]["differences"]],
        },
        **{
            key: {part: total(key, part) for part in ("predicted", "compiled")}
            for key in ("parameter_bytes", "activation_peak_B")
        },
        "rank": verdicts[0].rank,
        "mindspore": verdicts[0].mindspore,
        "compile_time_s": sum(v.compile_time_s for v in verdicts),
        "stages": each,
    }


def verdicts_text(verdicts: Sequence["Verdict"]) -> str:
    """The verdict on one rank of every stage, and on all."""
    passed = all(verdict.passed for verdict in verdicts)
    texts = [verdict_text(verdict) for verdict in verdicts]
    if len(texts) > 1:  # not one rank alone
        texts.append("all stages verified" if passed else "NOT all stages verified")
    return "\n".join(texts)
