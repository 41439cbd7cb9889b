"""Plans that are refused before anything is compiled."""

from dataclasses import replace

import pytest

from benchmarks.proof_cases import CASE_BY_NAME, plan_of
from ms_symtensor.bridge.proof.prove import prove_plan
from ms_symtensor.errors import InputError

STAGES = plan_of(CASE_BY_NAME["PP2 TP2 SP"], "llama2_7b", "flash")


def test_pipelines_of_networks_that_exist_as_they_are() -> None:
    with pytest.raises(InputError, match="proved on networks of the zoo"):
        prove_plan(replace(STAGES, source={"factory": "net.py:make"}))
