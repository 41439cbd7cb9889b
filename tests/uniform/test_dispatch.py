"""Tokens to their experts as MindFormers sends them: two levels, safe tokens."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.bill import Message, Part
from ms_symtensor.cost.runtime import runtime_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.targets.mindformers.rules import refusal
from ms_symtensor.uniform.dispatch import with_safe_tokens
from ms_symtensor.uniform.folded import folded_bill
from ms_symtensor.uniform.layout import Degrees, Stages, UniformLayout
from ms_symtensor.uniform.prices import Prices

CONFIG = dimensions_of("qwen3_30b_a3b", num_layers=2, batch_size=32, seq_length=1024)
LAYOUT = UniformLayout(Degrees(32, 1, expert_parallel=32, expert_model_parallel=1))


def with_experts(**choices):
    assert CONFIG.experts is not None
    return replace(CONFIG, experts=replace(CONFIG.experts, **choices))


def dispatches(config) -> dict[Message, int]:
    (stage,) = folded_bill(config, LAYOUT).stages
    return {
        work: count
        for key, works in stage.bill.items.items()
        if key.part is Part.EXPERT
        for work, count in works.items()
        if isinstance(work, Message)
    }


def price(config, layout: UniformLayout = LAYOUT):
    request = Request(
        load("atlas_800t_a2"), layout.device_num, config.batch_size, config.seq_length, 1 << 40, "",
        runtime=runtime_of("mindformers_graph"),
    )  # fmt: skip
    return Prices(config, request).of(layout)


def test_tokens_travel_in_two_levels() -> None:
    plain = dispatches(CONFIG)
    whole = {work: count for work, count in plain.items() if work.kind == "AlltoAll"}
    assert whole and {len(work.ranks) for work in whole} == {32}
    two = dispatches(with_experts(dispatcher="alltoall_deredundancy"))
    inside = {work: count for work, count in two.items() if work.kind == "AlltoAll"}
    across = {work: count for work, count in two.items() if work.kind == "AllGather"}
    assert {work.ranks for work in inside} == {tuple(range(8))} and {work.ranks for work in across} == {(0, 8, 16, 24)}
    assert sum(inside.values()) == sum(across.values()) == sum(whole.values())
    # A node holds a token once: four nodes' tokens of 1,024 x 2,048 in bfloat16, whatever the number of experts of a token.
    assert max(work.size_B for work in across) == pytest.approx(4 * 1024 * 2048 * 2, rel=0.01)


def test_two_levels_are_faster_where_nodes_are_slower() -> None:
    assert (
        price(with_experts(dispatcher="alltoall_deredundancy")).experts_s["dispatch"]
        < 0.8 * (price(CONFIG).experts_s["dispatch"])
    )


def test_safe_tokens_are_rows_of_every_rank() -> None:
    safe = with_experts(safe_tokens=True)
    found = with_safe_tokens(safe, LAYOUT).experts
    assert found is not None and CONFIG.experts is not None
    assert found.load_imbalance == pytest.approx(CONFIG.experts.load_imbalance * (1 + 128 / 1024))
    assert with_safe_tokens(CONFIG, LAYOUT) == CONFIG
    plain, more = price(CONFIG), price(safe)
    ratio = found.places(1024) / CONFIG.experts.places(1024)  # rounded to 16 rows each
    assert more.experts_s["dispatch"] == pytest.approx(ratio * plain.experts_s["dispatch"], rel=0.02)
    assert more.step_time_s > plain.step_time_s


def test_safe_tokens_of_micro_batches_are_those_of_each() -> None:
    staged = replace(LAYOUT, stages=Stages(2, 4), degrees=Degrees(8, 1, expert_parallel=8, expert_model_parallel=1))
    assert price(with_experts(safe_tokens=True), staged).step_time_s > price(CONFIG, staged).step_time_s


def test_two_levels_need_whole_nodes() -> None:
    few = UniformLayout(Degrees(4, 1, expert_parallel=4, expert_model_parallel=1))
    assert "npu_nums_per_device or more" in refusal(with_experts(dispatcher="alltoall_deredundancy"), few)
    assert refusal(CONFIG, few) == ""
