"""How long an example of a property takes is the machine's business, not the test's; and one MindSpore compile at a time."""

import inspect
import re

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any_machine", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.load_profile("any_machine")

WANTS_MINDSPORE = re.compile(r'^(pytest\.importorskip\("mindspore"|import mindspore|from mindspore)', re.MULTILINE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that have MindSpore compile go to one worker of `pytest -n 2 --dist loadgroup`, the other one takes the rest."""
    for item in items:
        if isinstance(item, pytest.Function) and _compiles(item):
            item.add_marker(pytest.mark.xdist_group("compiler"))


def _compiles(item: pytest.Function) -> bool:
    if "bridge" in item.path.parts or item.path.stem == "test_against_compiler":
        return True
    return "mindspore" in inspect.getsource(item.function) or bool(
        WANTS_MINDSPORE.search(inspect.getsource(item.module))
    )
