"""MindSpore's checks that an argument is a tensor, left out: each makes a tensor of the shape of the argument on the host.

For `ops.cross_entropy` that is samples times tokens times vocabulary; what is no tensor, MindSpore rejects all the same.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CHECK = "_check_is_tensor"


def unchecked(param_name: str, input_data: Any, cls_name: str) -> None:
    """Stands for the check; MindSpore compiles it."""
    return None


@contextmanager
def tensors_unchecked() -> Iterator[None]:
    """While open, what is compiled has none of these checks."""
    modules = [vars(module) for name, module in list(sys.modules.items()) if name.startswith("mindspore.")]
    changed = [(names, names[_CHECK]) for names in modules if _CHECK in names]
    for names, _ in changed:
        names[_CHECK] = unchecked
    try:
        yield
    finally:
        for names, check in changed:
            names[_CHECK] = check
