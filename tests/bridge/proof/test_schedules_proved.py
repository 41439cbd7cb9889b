"""A pipeline stage runs its passes in the order that is asked, and loss and gradients stay the same."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ms_symtensor.bridge.proof.prove import Request, prove_plan
from ms_symtensor.bridge.proof.reordering import places
from ms_symtensor.bridge.proof.trial import Trial, prepare
from ms_symtensor.cli import main
from ms_symtensor.errors import InputError
from ms_symtensor.program.schedules.scheduler import Turn
from ms_symtensor.strategy.file import load, load_graph

SIZE = ["llama2_7b", "--num-layers", "4", "--device-num", "2", "--global-batch-size", "8", "--seq-length", "512"]
PINS = ["--fix", "pipeline_stages=2", "--fix", "pp_interleave_num=1", "--fix", "micro_batch_num=4"]


def turns(text: str) -> tuple[Turn, ...]:
    """`F0 B0` as turns."""
    return tuple(Turn(int(one[1:]), 0, one[0] == "B") for one in text.split())


@pytest.mark.matrix
def test_stages_run_in_the_order_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stage keeps one more than 1F1B does, so that all that goes forward crosses the border first."""
    assert main(["plan", *SIZE, *PINS, "--out", str(tmp_path)]) == 0
    order = turns("F0 F1 F2 B0 F3 B1 B2 B3"), turns("F0 F1 B0 F2 B1 F3 B2 B3")
    trials: list[Trial] = []

    def kept(*arguments: object) -> Trial:
        trials.append(prepare(*arguments))  # type: ignore[arg-type]
        return trials[-1]

    monkeypatch.setattr("ms_symtensor.bridge.proof.trial.prepare", kept)
    proof = prove_plan(load(str(tmp_path)), load_graph(str(tmp_path)), Request(order=order))
    assert proof.equal
    assert [_passed(program.meetings) for program in trials[0].programs] == ["FFFBBB", "FFFBBB"]


def _passed(meetings: Sequence[object]) -> str:
    """What crosses the border, in the order in which a rank meets the other one."""
    names = [getattr(meeting, "name", "") for meeting in meetings]
    borders = [name for name in names if "Send" in name or "Receive" in name]
    return "".join("B" if name.startswith("Gradients/") else "F" for name in borders)


def test_all_ranks_exchange_in_one_order() -> None:
    """Each stage sends what the next one receives at the same moment, whatever the order of passes."""
    orders = [turns("F0 F1 F2 F3 B0 B1 B2 B3"), turns("F0 F1 B0 F2 B1 F3 B2 B3"), turns("F0 B0 F1 F2 B1 F3 B2 B3")]
    found = [places(orders, stage) for stage in range(3)]
    for stage, onward in ((0, False), (1, False), (1, True), (2, True)):
        there = found[stage - 1 if onward else stage + 1]
        for micro_batch in range(4):
            sent = found[stage].borders["Send", onward, micro_batch]
            assert sent == there.borders["Receive", onward, micro_batch]
            assert sent > found[stage].passes[micro_batch, onward]
    with pytest.raises(InputError, match="never ends"):
        places([turns("B0 F0"), turns("F0 B0")], 0)
