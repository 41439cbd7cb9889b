"""Packaging of ms_symtensor and the model zoo. Settings of the development tools are in pyproject.toml."""

import re
import runpy
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
EDITABLE = bool({"editable_wheel", "develop"} & set(sys.argv))


class BuildWithZoo(build_py):
    """The zoo of a wheel is `ms_symtensor.model_zoo`: a name of its own at the top level could be somebody else's.

    So what imports it from the repository's top level imports it from there.
    """

    def run(self) -> None:
        super().run()
        for file in () if EDITABLE else Path(self.build_lib).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            moved = re.sub(r"^(\s*from )(model_zoo\b)", r"\1ms_symtensor.\2", text, flags=re.MULTILINE)
            if moved != text:
                file.write_text(moved, encoding="utf-8")


setup(
    name="ms_symtensor",
    version=runpy.run_path(str(ROOT / "ms_symtensor" / "version.py"))["VERSION"],
    description="Finds the sharding strategy of a large model for MindSpore, and has MindSpore's own compiler check it",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The ms_symtensor authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["MindSpore", "Ascend", "parallel training", "sharding", "auto parallel", "cost model"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["ms_symtensor*", *(["model_zoo*"] if EDITABLE else [])])
    + ([] if EDITABLE else ["ms_symtensor.model_zoo"]),
    package_dir={} if EDITABLE else {"ms_symtensor.model_zoo": "model_zoo"},
    cmdclass={"build_py": BuildWithZoo},
    package_data={
        "ms_symtensor": ["py.typed"],
        "ms_symtensor.cluster": ["*.yaml"],
        "ms_symtensor.cost": ["runtimes/*.yaml"],
        "ms_symtensor.targets.mindformers_pynative": ["files/*.yaml"],
        "ms_symtensor.report": ["html/*.css", "html/*.js", "html/*.json"],
    },
    python_requires=">=3.10",
    install_requires=["numpy>=1.24", "pyyaml>=6", "scipy>=1.10", "sympy>=1.12", "tqdm>=4.60"],
    extras_require={
        # MindSpore has no bfloat16 with numpy 2. 2.11 was announced as the last one with distributed training in static graphs.
        "mindspore": ["mindspore>=2.7,<2.12", "numpy<2"],
        "completion": ["shtab>=1.6"],
        "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.26", "ruff"],
        "plots": ["matplotlib"],  # benchmarks/validation.py --plots
        "test": ["hypothesis", "mypy", "pytest", "pytest-xdist", "ruff", "shtab", "types-PyYAML", "types-tqdm"],
    },
    entry_points={"console_scripts": ["symtensor=ms_symtensor.__main__:command"]},
)
