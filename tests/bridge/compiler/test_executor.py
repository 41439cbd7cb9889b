"""MindSpore's errors in one line, and what is otherwise for the time of a run."""

import inspect
import os
import sys

import pytest

from ms_symtensor.bridge.compiler.executor import _Log, explain, has_lazy_inline, sources_read_once, without_lazy_inline
from tests.bridge.networks import Net

MESSAGE = """Failure:operator MatMul init failed

----------------------------------------------------
- The Traceback of Net Construct Code:
----------------------------------------------------
# 0 In file /venv/lib/mindspore/ops/grad.py:5, 1~2
# 1 In file /home/me/net.py:17, 53~72
        y = self.matmul(x, w)
"""


def test_the_users_line_comes_before_mindspores_own():
    assert explain(RuntimeError(MESSAGE)) == "Failure:operator MatMul init failed (at /home/me/net.py:17)"


def test_the_line_is_that_of_the_innermost_call():
    inner = MESSAGE + "# 2 In file /home/me/layer.py:4, 15~59\n# 3 In file /venv/lib/mindspore/ops/pad.py:40, 4~10\n"
    assert explain(RuntimeError(inner)).endswith("(at /home/me/layer.py:4)")
    step = f"# 4 In file {inspect.getsourcefile(explain)}:51, 4~70\n"
    assert explain(RuntimeError(inner + step)).endswith("(at /home/me/layer.py:4)")


def test_the_reason_may_stand_in_the_log_only():
    text = explain(RuntimeError(MESSAGE), ["MatMulInfo0: 64 cannot be divisible by 3"])
    assert text.startswith("Failure:operator MatMul init failed: MatMulInfo0: 64 cannot be divisible by 3 (at")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("The pointer[fg] is null.\n\n---\n- C++ Call Stack", "null: a condition of Python is left in the graph"),
        ("Cannot export a PyExecute CNode in MindIR.", "MindIR: Python runs in it, as for a dict that it returns"),
        ("The method 'GetShapeVector()' doesn't implement\n", "implement: a tuple stands where a tensor is taken"),
        (
            "'For Tensor.transpose, the number of axes must be equal to the dimension of Tensor.'",
            "use swapaxes for two of them",
        ),
        (
            "Unsupported input type. For BitXor, only integer types are supported.",
            "supported: in a graph ^ takes no booleans: use !=",
        ),
    ],
)
def test_the_cause_is_told_where_mindspore_tells_none(text, cause):
    assert cause in explain(RuntimeError(text))


def test_an_error_without_text_is_named():
    assert explain(KeyError()) == "KeyError"


def test_lazy_inline_is_off_for_a_while():
    net = Net()
    assert has_lazy_inline(net)
    with without_lazy_inline(net):
        assert not has_lazy_inline(net)
    assert has_lazy_inline(net)


def test_a_functions_source_is_read_once():
    before = inspect.getsourcelines
    with sources_read_once():
        lines = inspect.getsourcelines(Net().construct)
        assert lines == before(Net.construct)
        assert inspect.getsourcelines(Net().construct) is lines
        assert inspect.getsourcelines(explain) == before(explain)
        with pytest.raises(TypeError):
            inspect.getsourcelines(3)
    assert inspect.getsourcelines is before


class _PlainStream:
    """A standard error stream with as little as the one of Python's that MindSpore's compile cache leaves."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_a_plain_error_stream_gets_what_was_logged(tmp_path, monkeypatch):
    stream = _PlainStream()
    monkeypatch.setattr(sys, "stderr", stream)
    with _Log(str(tmp_path)):
        os.write(2, b"said by a library\n")
    assert stream.text == "said by a library\n"
