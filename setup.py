"""Packaging of ms_symtensor and the model zoo. Settings of the development tools are in pyproject.toml."""

import runpy
from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="ms_symtensor",
    version=runpy.run_path(str(Path(__file__).parent / "ms_symtensor" / "version.py"))["VERSION"],
    description="Finds the sharding strategy of a large model for MindSpore, and has MindSpore's own compiler check it",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    packages=find_packages(include=["ms_symtensor*", "model_zoo*"]),
    package_data={
        "ms_symtensor": ["py.typed"],
        "ms_symtensor.cluster": ["*.yaml"],
        "ms_symtensor.cost": ["runtimes/*.yaml"],
    },
    python_requires=">=3.10",
    install_requires=["numpy", "pyyaml", "scipy", "sympy", "tqdm"],
    extras_require={
        # MindSpore has no bfloat16 with numpy 2.
        "mindspore": ["mindspore>=2.7,<2.11", "numpy<2"],
        "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.26", "ruff"],
        "plots": ["matplotlib"],  # benchmarks/validation.py --plots
        "test": ["hypothesis", "mypy", "pytest", "pytest-xdist", "ruff", "types-PyYAML", "types-tqdm"],
    },
    entry_points={"console_scripts": ["symtensor=ms_symtensor.__main__:command"]},
)
