"""How long an example of a property takes is the machine's business, not the test's; and who has MindSpore compile."""

import ast
import os
import platform
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ms_symtensor.allocator import TUNABLES, tuned

settings.register_profile("any_machine", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.load_profile("any_machine")

ROOT = Path(__file__).parents[1]
SEARCHING = (
    "tests/test_", "tests/search/", "tests/uniform/", "tests/targets/", "tests/report/", "tests/sweep/", "tests/docs/test_code",
    "tests/docs/test_json", "tests/cost/test_explain", "tests/cost/test_overlap", "tests/timeline/test_step",
    "tests/traffic/test_traffic_command", "tests/scheduling/test_schedule", "tests/cluster/test_bounded", "tests/serving/",
    "tests/strategy/test_folder", "tests/reshard/test_reshard", "tests/cost/test_stage_time",
)  # fmt: skip
"""What plans, runs commands, or takes long otherwise."""
QUICK = "tests/test_architecture.py"
"""Of these, what does not."""
WANTS_MINDSPORE = r'(pytest\.importorskip\("mindspore"|import mindspore|from mindspore)'
OF_A_FILE = re.compile(f"^{WANTS_MINDSPORE}", re.MULTILINE)
OF_A_FUNCTION = re.compile(rf"^ *({WANTS_MINDSPORE}|@needs_mindspore$)", re.MULTILINE)


@pytest.fixture(scope="session", autouse=True)
def state_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Plans that tests make are not noted as the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The marks of the tiers; what `make test` has no time for is not quick."""
    for item in items:
        for mark in tiers(item.nodeid):
            item.add_marker(mark)
        if any(map(item.get_closest_marker, ("matrix", "pynative"))):
            item.add_marker("search")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs) -> None:
    """MindSpore compiles in the workers with the C library set as the commands set it for themselves."""
    if platform.libc_ver()[0] == "glibc":
        os.environ.setdefault(TUNABLES, tuned())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Tests that have MindSpore compile for Ascend go to one worker of `pytest -n 2`. Proofs, mostly local processes at work, and
    networks that are captured or run, which are small, go to the other one, which takes the rest.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneCompiler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/bridge/proof/"):
                return "proof"
            if nodeid.startswith(("tests/bridge/capture/", "tests/model_zoo/")):
                return nodeid.partition("::")[0]
            return "compiler" if compiles(nodeid) else nodeid

    return OneCompiler(config, log)


def tiers(nodeid: str) -> Iterator[str]:
    """The marks of the test `nodeid`. Without any is what `make fast` runs."""
    if compiles(nodeid):
        yield "compile"
    if nodeid.startswith("tests/bridge/proof/"):
        yield "proof"
    if nodeid.startswith(SEARCHING) and not nodeid.startswith(QUICK):
        yield "search"


def compiles(nodeid: str) -> bool:
    """Whether the test `nodeid` needs MindSpore: all of the bridge's, of files that import it, and those that import it."""
    file, _, name = nodeid.partition("::")
    if "bridge" in Path(file).parts or Path(file).stem == "test_against_compiler":
        return True
    text, sources = _functions(file)
    function = name.partition("[")[0].rpartition("::")[2]
    return bool(OF_A_FILE.search(text) or OF_A_FUNCTION.search(sources.get(function, "")))


@cache
def _functions(file: str) -> tuple[str, dict[str, str]]:
    """The text of a file, and that of its functions with what decorates them."""
    text = (ROOT / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    first = {node: min(part.lineno for part in (node, *node.decorator_list)) for node in functions}
    return text, {node.name: "\n".join(lines[start - 1 : node.end_lineno]) for node, start in first.items()}
