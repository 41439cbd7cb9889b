"""The experiments of the papers, predicted: our plans against Megatron's and MindFormers', all priced by the same formulas.

    python -m benchmarks.papers [generality] [attention] [mixture] [lora] [qwen72b] [llama7b] [--tuned] [--verify]

SymTensor (Wang, Yu, Li, Petiton, HLPP 2025): `generality`, six models; its "adaptability": another `attention`, a `mixture` of
experts, and `lora`, a larger batch. Poster (Shen, Astaoui, Tachon, Li): `qwen72b`, Qwen1.5-72B on 64 devices, and `llama7b`,
Llama-2 7B on 8 devices of Ascend 910B and 910C, over data, model and pipeline parallelism.

Megatron's usual plan: see `hand_plans.megatron_usual`; `--tuned` adds the fastest of all its splits. `--verify` has MindSpore
compile one rank of each stage of every plan shown, with few blocks. At the end stands a table of Markdown for each experiment.
What the papers leave out (devices beyond one node, batch, sequence) is assumed, and said in the output.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from benchmarks.hand_plans import Hand, Task, experts, megatron_tuned, megatron_usual, priced, task
from benchmarks.ratios import shown
from benchmarks.results import markdown
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.best import best_plan
from ms_symtensor.strategy.plan import Plan

GIB = 1024**3
NODE = "atlas_800t_a2"
"""The slides: a node of 8 Ascend 910 (A2), 56 GB/s links between every two of them, 200 Gb/s out of the node."""

GENERALITY = ("llama3_8b", "llama3_70b", "deepseek_coder_7b", "internlm2_20b", "codellama_34b", "qwen_7b_lora")
DEVICE_NUMS = (8, 16, 32, 64)
SAMPLES = 2
"""Per device, assumed."""

PUBLISHED = {"llama2_13b": (10961, 15845), "mixtral_8x7b": (2936, 6506), "qwen_7b_lora": (None, 17626)}
"""Tokens per second of Megatron-LM and of SymTensor (slides, table of "Adaptability"); None: out of memory."""

Row = tuple[str, Task, Plan]


def generality(tuned: bool) -> Iterator[str | Row]:
    """The smallest of 8 to 64 devices on which both have a plan."""
    yield "Generality (slides: a chart of speed-ups, whose text has no figures); assumed: 2 samples of 4096 tokens per device"
    for model in GENERALITY:
        for device_num in DEVICE_NUMS:
            of = task(model, load(NODE), device_num, SAMPLES * device_num)
            ours, usual = _ours(of), megatron_usual(of)
            if ours is not None and usual is not None:
                yield from _compared(of, ours, usual, tuned)
                break
        for one in experts():
            if one.model == model:
                of = one.task(load(NODE))
                yield f"  {one.name}: {of.device_num} devices, batch {of.config.batch_size}, {of.config.seq_length} tokens"
                yield from _rows(of, _ours(of), ((f"MindFormers {one.hand}", _try(of, one.hand)),))


def attention(tuned: bool) -> Iterator[str | Row]:
    """Self-attention replaced by FlashAttention."""
    megatron, symtensor = PUBLISHED["llama2_13b"]
    yield f"Llama-2 13B, self-attention to FlashAttention (published: {megatron} and {symtensor} tokens/s, 1.45)"
    for kind in ("self", "flash"):
        of = task("llama2_13b", load(NODE), 8, 8 * SAMPLES, attention=kind)
        yield from _compared(of, _ours(of), megatron_usual(of), tuned)


def mixture(tuned: bool) -> Iterator[str | Row]:
    """A mixture of experts."""
    megatron, symtensor = PUBLISHED["mixtral_8x7b"]
    yield f"Mixtral 8x7B (published: {megatron} and {symtensor} tokens/s, 2.22); 47e9 parameters do not fit on 8 devices"
    of = task("mixtral_8x7b", load(NODE), 16, 16 * SAMPLES)
    yield from _compared(of, _ours(of), megatron_usual(of), tuned)


def lora(tuned: bool) -> Iterator[str | Row]:
    """The fastest of Megatron's plans for a small batch, kept for a large one."""
    _, symtensor = PUBLISHED["qwen_7b_lora"]
    yield f"Qwen-7B LoRA, batch 8 to 32 of a device (published: out of memory and {symtensor} tokens/s)"
    config = next(one for one in experts() if one.model == "qwen_7b_lora")  # tokens and attention are those of its file
    options = {"seq_length": config.seq_length, "attention": config.attention}
    of, more = (task("qwen_7b_lora", load(NODE), 8, 8 * batch, **options) for batch in (8, 32))
    usual = megatron_usual(of)
    yield from _compared(of, _ours(of), usual, tuned)
    kept = [("tuned", megatron_tuned(of)), ("usual", usual)]
    yield "  with batch 32; what was best for batch 8 is kept"
    yield from _rows(more, _ours(more), [_kept(more, name, one[0]) for name, one in kept if one is not None])


def _kept(of: Task, name: str, hand: Hand) -> tuple[str, Plan | None]:
    whole = of.config.batch_size // hand.data_parallel
    larger = replace(hand, micro_batch=whole if hand.pipeline_stages == 1 else hand.micro_batch)
    return f"Megatron {name} {larger}", _try(of, larger)


def qwen72b(_: bool) -> Iterator[str | Row]:
    """Data, model and pipeline parallelism of Qwen1.5-72B, the expert's own, and ours."""
    for one in experts():
        if one.name == "pretrain_qwen1_5_72b":
            of = one.task(load(NODE))
            size = f"batch {of.config.batch_size} of {of.config.seq_length} tokens"
            yield f"Qwen1.5-72B, 64 devices, {size}, as in {one.name} (poster: a chart)"
            others = ((f"expert {one.hand}", _try(of, one.hand)), *_grid(of, 1))
            yield from _rows(of, _ours(of), others)
            yield "  the same batch of 4096 tokens"
            short = task("qwen1_5_72b", load(NODE), 64, of.config.batch_size)
            yield from _rows(short, _ours(short), _grid(short, 1))


def llama7b(_: bool) -> Iterator[str | Row]:
    """Data, model and pipeline parallelism of Llama-2 7B on two generations of the device."""
    for cluster, name in ((NODE, "910B"), ("atlas_800t_a3", "910C")):
        of = task("llama2_7b", load(cluster), 8, 16)
        yield f"Llama-2 7B, 8 devices of {name}, batch 16 of 4096 tokens (poster: a chart)"
        yield from _rows(of, _ours(of), _grid(of, 1))


def _grid(of: Task, micro_batch: int) -> tuple[tuple[str, Plan | None], ...]:
    """All splits of the devices, the fastest first: sequence parallelism, sharded optimizer, as few recomputed blocks as fit."""
    found = []
    degrees = [2**i for i in range(of.device_num.bit_length())]
    for model in (n for n in degrees if n <= 8):
        for stages in (n for n in degrees if n * model <= of.device_num):
            data = of.device_num // (model * stages)
            samples = micro_batch if stages > 1 else of.config.batch_size // max(data, 1)
            hand = Hand(data, model, stages, samples, model > 1, OptimizerLevel.LEVEL1)
            found.append((str(hand), _try(of, hand)))
    known = [one for one in found if one[1] is not None]
    return tuple(sorted(known, key=lambda one: (not one[1].prediction.fits, one[1].prediction.step_time_s)))  # type: ignore[union-attr]


def _compared(of: Task, ours: Plan | None, usual: tuple[Hand, Plan] | None, tuned: bool) -> Iterator[str | Row]:
    others: list[tuple[str, Plan | None]] = [(f"Megatron {usual[0] if usual else ''}", usual[1] if usual else None)]
    if tuned:
        best = megatron_tuned(of)
        others.append((f"tuned {best[0] if best else ''}", best[1] if best else None))
    yield f"  {_setting(of)}"
    yield from _rows(of, ours, others)


def _rows(of: Task, ours: Plan | None, others: Sequence[tuple[str, Plan | None]]) -> Iterator[str | Row]:
    """A line per plan: step, tokens per second, speed-up of ours, memory."""
    if ours is None:
        yield "    ours: no plan fits"
    else:
        yield _line(of, f"ours {shown(ours)}", ours, None)
        yield "ours", of, ours
    for name, plan in others:
        if plan is None:
            yield f"    {name:60s} none that fits, or does not divide"
        else:
            yield _line(of, name, plan, ours)
            yield name, of, plan


def _line(of: Task, name: str, plan: Plan, ours: Plan | None) -> str:
    seconds = plan.prediction.step_time_s
    tokens = of.config.batch_size * of.config.seq_length / seconds
    ratio = f"{seconds / ours.prediction.step_time_s:5.2f}" if ours is not None else "     "
    memory = f"{plan.prediction.peak_memory_B / GIB:6.1f} GiB" + ("" if plan.prediction.fits else ", out of memory")
    return f"    {name:60s} {seconds:8.3f} s {tokens:9.0f} tokens/s {ratio} {memory}"


def _ours(of: Task) -> Plan | None:
    try:
        return best_plan(of.network, of.request)
    except InfeasibleError:
        return None


def _try(of: Task, hand: Hand) -> Plan | None:
    try:
        return priced(of, hand)
    except (InputError, InvalidStrategyError):
        return None


def _verified(plan: Plan) -> tuple[bool, str]:
    """What MindSpore's compiler says of a plan with few blocks."""
    from benchmarks.verdicts import verdicts

    found = verdicts(plan, 1)
    wrong = [v for v in found if not v.passed]
    number = sum(v.comparison.compiled_collectives for v in found if v.comparison is not None)
    text = f"{len(found)} ranks accepted, {number} collectives equal"
    if wrong:
        text = "; ".join(
            f"rank {v.rank}: {v.reason or v.comparison.differences[:2] or v.unsynchronised[:2]}"[:300] for v in wrong
        )
    return not wrong, text


COLUMNS = "network, devices, batch", "plan", "step", "tokens/s", "step / ours", "memory"


def _cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Rows of a table: our plan for a setting, if there is one, then the others for it."""
    before, ours_s = "", math.nan
    for name, of, plan in rows:
        setting, step_s, is_ours = _setting(of), plan.prediction.step_time_s, name == "ours"
        ours_s = step_s if is_ours else ours_s if setting == before else math.nan
        memory = f"{plan.prediction.peak_memory_B / GIB:.1f} GiB"
        yield (
            "" if setting == before else setting, f"ours: {shown(plan)}" if is_ours else name, f"{step_s:.4g} s",
            f"{of.config.batch_size * of.config.seq_length / step_s:.0f}", f"{step_s / ours_s:.2f}",
            memory if plan.prediction.fits else f"{memory}, does not fit",
        )  # fmt: skip
        before = setting


def _setting(of: Task) -> str:
    config = of.config
    size = f"batch {config.batch_size} of {config.seq_length} tokens"
    return f"{config.name}, {of.device_num} devices of {of.cluster.name}, {size}, {config.attention} attention"


EXPERIMENTS: dict[str, Callable[[bool], Iterator[str | Row]]] = {
    "generality": generality, "attention": attention, "mixture": mixture, "lora": lora, "qwen72b": qwen72b, "llama7b": llama7b,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", default=list(EXPERIMENTS), metavar=" | ".join(EXPERIMENTS))
    parser.add_argument("--tuned", action="store_true", help="the fastest of all of Megatron's splits too (minutes)")
    parser.add_argument("--verify", action="store_true", help="have MindSpore compile every plan")
    chosen = parser.parse_args()
    ok, tables = True, list[str]()
    for name in chosen.experiments:
        rows = list[Row]()
        for item in EXPERIMENTS[name](chosen.tuned):
            if isinstance(item, str):
                print(item, flush=True)
                continue
            rows.append(item)
            if chosen.verify and item[2].prediction.fits:
                passed, text = _verified(item[2])
                ok &= passed
                print(f"      {'ok' if passed else 'WRONG'}: {text}", flush=True)
        tables.append(markdown(COLUMNS, _cells(rows)))
    print("\n\n".join(["", *tables]))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
