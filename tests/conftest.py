"""How long an example of a property takes is the machine's business, not the test's; and who has MindSpore compile."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any_machine", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.load_profile("any_machine")

ROOT = Path(__file__).parents[1]
WANTS_MINDSPORE = re.compile(r'^(pytest\.importorskip\("mindspore"|import mindspore|from mindspore)', re.MULTILINE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """All tests that have MindSpore compile go to one worker of `pytest -n 2`; but proofs, of networks that are small, and mostly
    local processes at work, to the other one, which takes the rest.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneCompiler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/bridge/proof/"):
                return "proof"
            return "compiler" if compiles(nodeid) else nodeid

    return OneCompiler(config, log)


def compiles(nodeid: str) -> bool:
    """Whether the test `nodeid` needs MindSpore: all of the bridge's, of files that import it, and those that name it."""
    file, _, name = nodeid.partition("::")
    if "bridge" in Path(file).parts or Path(file).stem == "test_against_compiler":
        return True
    text, sources = _functions(file)
    function = name.partition("[")[0].rpartition("::")[2]
    return bool(WANTS_MINDSPORE.search(text)) or "mindspore" in sources.get(function, "")


@cache
def _functions(file: str) -> tuple[str, dict[str, str]]:
    """The text of a file, and that of its functions."""
    text = (ROOT / file).read_text(encoding="utf-8")
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    return text, {node.name: ast.get_source_segment(text, node) or "" for node in functions}
