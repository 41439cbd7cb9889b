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


@pytest.fixture(scope="module")
def small() -> dict[str, dict[str, Any]]:
    """A plan and a refusal."""
    texts = ("gpt2_xl 2 4 --num-layers 2", "gpt2_xl 2 4 --num-layers 2 --memory-limit 0.5")
    return {text: answer(Request("small", text)) for text in texts}


def test_an_answer_is_a_plan_or_a_message_with_its_cost(small: dict[str, dict[str, Any]]) -> None:
    plan, refusal = small.values()
    assert plan["step_time_s"] == pytest.approx(sum(plan["time_breakdown_s"].values()))
    assert plan["peak_memory_B"] == sum(plan["memory_breakdown_B"].values()) <= plan["memory_limit_B"]
    assert plan["collectives"] and all(one["count"] > 0 for one in plan["collectives"].values())
    assert refusal["message"].startswith("nothing found that fits 0.5 GiB")
    for one in (plan, refusal):
        assert one["processor_s"] > 0 and one["loops"] > 0 and one["process_MiB"] > 50


@pytest.mark.matrix
def test_the_same_answers_differ_in_nothing(small: dict[str, dict[str, Any]]) -> None:
    lines, good = compared(small, copy.deepcopy(small), 0.02)
    assert good
    assert lines[0] == "step: 1.0000 of the old one on average, 1.0000 at most"


def test_a_slower_step_fails_beyond_the_tolerance(small: dict[str, dict[str, Any]]) -> None:
    slower = copy.deepcopy(small)
    name = next(iter(slower))
    slower[name]["step_time_s"] *= 1.03
    lines, good = compared(small, slower, 0.02)
    assert not good
    assert lines[:2] == [f"WORSE {name}", "    step x1.0300"]
    assert compared(small, slower, 0.04)[1]


def test_a_request_refused_on_one_side_fails(small: dict[str, dict[str, Any]]) -> None:
    planned, refused = small
    for changed in ({planned: small[refused]}, {refused: small[planned]}):
        lines, good = compared(small, small | changed, 0.02)
        assert not good
        assert lines[0] == f"WORSE {next(iter(changed))}"


def test_the_corpus_has_an_answer_to_every_request_and_enough_of_the_hard_ones() -> None:
    assert [one.text for one in REQUESTS] == list(KEPT)
    large = [text for text, found in KEPT.items() if is_memory_bound(found) and int(text.split()[1]) >= 64]
    assert sum(dimensions_of(text.split()[0]).experts is None for text in large) >= 15
    assert sum("message" not in KEPT[text] for text in EXPERTS) >= 8
