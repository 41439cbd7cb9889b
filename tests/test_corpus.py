"""benchmarks/corpus.py: what it keeps of an answer, and what of two answers it calls worse."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import answer, compared, is_memory_bound
from benchmarks.corpus_requests import EXPERTS, REQUESTS, Request
from model_zoo import dimensions_of

KEPT = json.loads((Path(__file__).parents[1] / "benchmarks/data/corpus.json").read_text(encoding="utf-8"))


@pytest.fixture
def two() -> dict[str, dict[str, Any]]:
    """A plan and a refusal that are kept."""
    refused = next(text for text, found in KEPT.items() if "message" in found)
    return {text: copy.deepcopy(KEPT[text]) for text in (next(iter(KEPT)), refused)}


def test_an_answer_is_a_plan_or_a_message_with_its_cost() -> None:
    texts = ("gpt2_xl 2 4 --num-layers 2", "gpt2_xl 2 4 --num-layers 2 --memory-limit 0.5")
    plan, refusal = (answer(Request("small", text)) for text in texts)
    assert plan["step_time_s"] == pytest.approx(sum(plan["time_breakdown_s"].values()))
    assert plan["peak_memory_B"] == sum(plan["memory_breakdown_B"].values()) <= plan["memory_limit_B"]
    assert plan["collectives"] and all(one["count"] > 0 for one in plan["collectives"].values())
    assert refusal["message"].startswith("nothing found that fits 0.5 GiB")
    for one in (plan, refusal):
        assert one["processor_s"] > 0 and one["loops"] > 0 and one["process_MiB"] > 50


def test_the_same_answers_differ_in_nothing(two: dict[str, dict[str, Any]]) -> None:
    lines, good = compared(two, copy.deepcopy(two), 0.02)
    assert good
    assert lines[0] == "step: 1.0000 of the old one on average, 1.0000 at most"


def test_a_slower_step_fails_beyond_the_tolerance(two: dict[str, dict[str, Any]]) -> None:
    slower = copy.deepcopy(two)
    name = next(iter(slower))
    slower[name]["step_time_s"] *= 1.03
    lines, good = compared(two, slower, 0.02)
    assert not good
    assert lines[:2] == [f"WORSE {name}", "    step x1.0300"]
    assert compared(two, slower, 0.04)[1]


def test_a_request_refused_on_one_side_fails(two: dict[str, dict[str, Any]]) -> None:
    planned, refused = two
    for changed in ({planned: two[refused]}, {refused: two[planned]}):
        lines, good = compared(two, two | changed, 0.02)
        assert not good
        assert lines[0] == f"WORSE {next(iter(changed))}"


def test_the_corpus_has_an_answer_to_every_request_and_enough_of_the_hard_ones() -> None:
    assert [one.text for one in REQUESTS] == list(KEPT)
    large = [text for text, found in KEPT.items() if is_memory_bound(found) and int(text.split()[1]) >= 64]
    assert sum(dimensions_of(text.split()[0]).experts is None for text in large) >= 15
    assert sum("message" not in KEPT[text] for text in EXPERTS) >= 8
