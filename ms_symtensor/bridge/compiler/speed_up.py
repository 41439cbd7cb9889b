"""MindSpore's overlap settings (`parallel_speed_up.json`): set at once, or for the duration of one compile."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ms_symtensor.cost.overlap import OVERLAPS
from ms_symtensor.errors import CompilerError

_ALL = "AlltoAll,AlltoAllV,AllGather,ReduceScatter,AllReduce"
"""What MindSpore makes of a true value of settings that name collectives (context.py, `_check_speedup_config_str_value`)."""


def speed_up(names: Sequence[str]) -> None:
    """Turn the settings `names` on. CompilerError where this MindSpore has none of a name."""
    for name in names:
        context, parameter = _parameter(name)
        is_text = isinstance(context.get_param(parameter), str)
        context.set_param(parameter, _ALL if is_text else True)


@contextmanager
def sped_up(names: Sequence[str]) -> Iterator[None]:
    """The settings `names` are on meanwhile, and no other of those that are known here."""
    before = {name: _parameter(name)[0].get_param(_parameter(name)[1]) for name in OVERLAPS if _has(name)}
    try:
        for name, value in before.items():
            context, parameter = _parameter(name)
            context.set_param(parameter, "" if isinstance(value, str) else False)
        speed_up(names)
        yield
    finally:
        for name, value in before.items():
            context, parameter = _parameter(name)
            context.set_param(parameter, value)


def _has(name: str) -> bool:
    from mindspore._c_expression import ms_ctx_param

    return hasattr(ms_ctx_param, OVERLAPS[name].parameter)


def _parameter(name: str) -> tuple[Any, Any]:
    from mindspore import context
    from mindspore._c_expression import ms_ctx_param

    if not _has(name):
        raise CompilerError(f"this MindSpore has no setting {name}: plan without overlap.{name}")
    return context._context(), getattr(ms_ctx_param, OVERLAPS[name].parameter)
