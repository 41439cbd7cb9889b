"""Does everything hold in every supported MindSpore? The 22 sample cases of benchmarks/exactness.py in six environments, and the
tests of what is read from a user's network and set on it.

    python -m benchmarks.versions [--versions 2.7.0 2.10.0 …] [--environments DIR] [--python 2.8.0=/path/python …]

Makes a virtual environment per version in DIR (one that is there is used again), or uses the interpreters given. Every
environment runs on its own; exit code 1 if one of them fails.
"""

import argparse
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

VERSIONS = ("2.7.0", "2.7.1", "2.7.2", "2.8.0", "2.9.0", "2.10.0")
ROOT = Path(__file__).parents[1]
COMMANDS = (
    ("benchmarks.exactness", "--sample"),
    ("pytest", "-q", "-m", "not matrix", "tests/bridge/capture", "tests/bridge/apply"),
)


def interpreter(version: str, environments: Path) -> Path:
    """The Python of an environment with that MindSpore, made if it is not there."""
    directory = environments / f"mindspore-{version}"
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    installed = directory / "installed_with_tests"
    if not installed.exists():
        packages = ["--editable", f"{ROOT}[mindspore,test]", f"mindspore=={version}"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        installed.touch()
    return python


def run(version: str, python: Path) -> bool:
    """Whether all sample cases and tests agree with this MindSpore; what they print is shown."""
    print(f"== MindSpore {version} ({python})", flush=True)
    return not any([subprocess.run([python, "-m", *command], cwd=ROOT).returncode for command in COMMANDS])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--versions", nargs="+", default=list(VERSIONS))
    parser.add_argument("--environments", type=Path, default=ROOT / ".environments")
    parser.add_argument(
        "--python", nargs="+", default=[], metavar="VERSION=PATH", help="interpreters to use as they are"
    )
    chosen = parser.parse_args(arguments)
    given = dict(pair.split("=", 1) for pair in chosen.python)
    agrees = {}
    for version in chosen.versions:
        python = Path(given[version]) if version in given else interpreter(version, chosen.environments)
        agrees[version] = run(version, python)
    for version, fine in agrees.items():
        print(f"MindSpore {version:7s} {'all agree' if fine else 'DIFFERS'}")
    return 0 if all(agrees.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
