"""What is said of hand-written strategies that MindSpore rejects: which dims disagree, and no price."""

import pytest

from ms_symtensor.bridge.judge.audit import audit
from ms_symtensor.cli import main
from ms_symtensor.errors import InputError
from ms_symtensor.report.verdict_report import audit_json, audit_text
from tests.bridge import hand_written


def test_a_rejected_program_says_which_dims_disagree_and_has_no_price():
    cell, inputs = hand_written.cut_in_two_ways()
    found = audit(cell, *inputs, device_num=8)
    assert not found.verdict.accepted and found.verdict.reason.startswith("MindSpore rejects")
    assert (
        "dim 1 of input 0 is cut by 2, and dim 1 of input 1, which is the same dim 'k', by 1: cut them"
        in found.verdict.reason
    )
    assert "predicted" not in audit_text(found) and audit_json(found)["costs"] == []


def test_devices_of_which_mindspore_forms_no_groups_are_refused_as_plan_refuses_them(capsys):
    cell, inputs = hand_written.plain()
    with pytest.raises(InputError, match="MindSpore forms communication groups on 1, 2, 4 or a multiple of 8 devices"):
        audit(cell, *inputs, device_num=6)
    assert main(["audit", f"{hand_written.__file__}:plain", "--device-num", "12"]) == 2
    assert "device_num is 12: MindSpore forms communication groups on 1, 2, 4" in capsys.readouterr().err
