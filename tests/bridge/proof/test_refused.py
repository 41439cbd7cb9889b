"""Plans that are refused before anything is compiled."""

from dataclasses import replace

import pytest

from benchmarks.proof_cases import CASE_BY_NAME, plan_of
from ms_symtensor.bridge.proof.prove import Request, prove_plan
from ms_symtensor.errors import InputError

STAGES = plan_of(CASE_BY_NAME["PP2 TP2 SP"], "llama2_7b", "flash")


def test_stages_of_a_factory_on_fewer_ranks() -> None:
    with pytest.raises(InputError, match="are proved on all devices: leave --ranks out"):
        prove_plan(replace(STAGES, source={"factory": "net.py:make"}), request=Request(ranks=2))
