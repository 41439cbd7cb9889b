"""The package is a row of rooms: each imports only rooms above it, and mindspore is imported by the bridge alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ms_symtensor"
ROOMS = (
    "version", "errors", "streams", "files", "garbage_collection", "interrupts", "allocator", "algebra", "tensor", "ops",
    "program",
    "cluster", "cost", "strategy", "reshard", "serving", "search", "uniform", "joint", "targets", "validation", "measured",
    "timeline", "traffic", "scheduling", "bridge", "report", "models", "fit", "arguments", "target_plans", "estimates", "sweep",
    "commands", "command_line", "cli",
)  # fmt: skip
SUB_ROOMS = {
    "search": ("constraints", "folded", "space", "tables", "stages", "certify", "selections"),
    "bridge": ("compiler", "compiled", "capture", "apply", "judge", "plugin", "proof", "pynative"),
}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(file: Path) -> str:
    part = file.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def imported(file: Path) -> Iterator[str]:
    """Full names of the modules that `file` imports, inside functions too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            yield node.module or ""


def test_every_room_is_known() -> None:
    assert {room_of(f) for f in FILES} - {"__init__", "__main__"} == set(ROOMS)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_rooms_import_only_rooms_above(file: Path) -> None:
    room = room_of(file)
    if room in ("__init__", "__main__"):
        return
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for module in imported(file):
        if module == "ms_symtensor":
            pytest.fail(f"{file} imports the package itself; import the module")
        if module.startswith("ms_symtensor."):
            assert module.split(".")[1] in allowed, f"{room} must not import {module}"


def test_no_two_test_files_have_one_name() -> None:
    """pytest takes only one of them."""
    names = [file.name for file in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("room", SUB_ROOMS)
def test_rooms_inside_a_room_import_only_rooms_above(room: str) -> None:
    order = SUB_ROOMS[room]
    files = [(f, f.relative_to(PACKAGE / room).parts[0]) for f in FILES if f.is_relative_to(PACKAGE / room)]
    inside = [(f, sub_room) for f, sub_room in files if f.parent != PACKAGE / room]
    assert {sub_room for _, sub_room in inside} == set(order)
    for file, sub_room in inside:
        for module in imported(file):
            if module.startswith(f"ms_symtensor.{room}."):
                allowed = order[: order.index(sub_room) + 1]
                assert module.split(".")[2] in allowed, f"{file}: {sub_room} must not import {module}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_only_the_bridge_imports_mindspore(file: Path) -> None:
    frameworks = [m for m in imported(file) if m.split(".")[0] in ("mindspore", "mindformers")]
    assert not frameworks or room_of(file) == "bridge"


def test_planning_needs_no_mindspore() -> None:
    code = (
        "import sys; sys.modules['mindspore'] = None\n"
        "import ms_symtensor\n"
        "from ms_symtensor.cli import main\n"
        "assert main(['plan', 'llama2_7b', '--num-layers', '2', '--device-num', '2', '--out', sys.argv[1]]) == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "/dev/null/nowhere"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    # The directory cannot be written, which is the last thing that happens: everything before it went through.
    assert "AssertionError" in done.stderr
    assert "cannot write to" in done.stderr


CACHES = {"cache", "lru_cache", "WeakKeyDictionary", "WeakValueDictionary"}
MOST_CACHES = 20
UNBOUNDED = {"ms_symtensor/cost/runtime.py"}
"""Files with a cache without a bound: of the run-times, a handful of names."""
REGISTRIES = {"_definitions", "_registered", "_configured"}
"""What the process is told: symbols, operators of the user, settings of MindSpore. They save no work."""


def called(node: ast.expr) -> str:
    """The name of what `node` is or calls: `lru_cache` for `functools.lru_cache(maxsize=64)`."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def process_wide(file: Path) -> Iterator[tuple[str, bool]]:
    """Caches that live as long as the process, and whether each is bounded: of functions, and tables that begin empty."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for node in [*body, *(inner for one in body if isinstance(one, ast.ClassDef) for inner in one.body)]:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if called(decorator) in CACHES:
                    yield (
                        f"{file}: {node.name}",
                        "maxsize=None" not in ast.unparse(decorator) and called(decorator) != "cache",
                    )
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            is_empty = ast.unparse(node.value) in ("{}", "dict()", "OrderedDict()")
            if (is_empty or called(node.value) in {*CACHES, "defaultdict"}) and called(target) not in REGISTRIES:
                yield f"{file}: {called(target)}", False


def test_few_caches_live_as_long_as_the_process() -> None:
    """Others are properties of frozen objects, or belong to one search."""
    found = [one for file in FILES for one in process_wide(file)]
    assert len(found) <= MOST_CACHES, "\n".join(name for name, _ in found)
    assert {name.split(":")[0] for name, bounded in found if not bounded} <= {str(ROOT / file) for file in UNBOUNDED}
