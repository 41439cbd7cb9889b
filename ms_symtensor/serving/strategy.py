"""How one instance of a serving engine is cut.

Of `pp` stages each has `dp * tp` devices. Attention takes requests `dp` ways and heads `tp` ways. The feed-forward of a dense
network is cut over `ffn_tp` devices: `tp`, or all of a stage, to which the tokens of all `dp` then go. Experts lie on `ep`
devices, or every expert is cut over all (`ep` 1).
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.errors import InputError

NAMES = ("tp", "dp", "pp", "ep")
_SHOWN = 12
_STAGES = (1, 2, 4, 8)
_ODD_STEP = 16
"""Instances of experts may have any multiple of so many devices (a node of A3, two of A2), others a power of two."""


@dataclass(frozen=True, order=True)
class Strategy:
    """See above. `stage_num`: devices of a stage."""

    pp: int = 1
    dp: int = 1
    tp: int = 1
    ep: int = 1
    ffn_tp: int = 1

    @property
    def stage_devices(self) -> int:
        return self.dp * self.tp

    @property
    def device_num(self) -> int:
        return self.pp * self.dp * self.tp

    @property
    def expert_tp(self) -> int:
        """Into how many slices every expert is cut."""
        return self.stage_devices // self.ep

    def text(self) -> str:
        """`tp8 dp4 ep32`, what is 1 left out."""
        words = [f"{name}{value}" for name, value in asdict(self).items() if name in NAMES and value > 1]
        return " ".join(words) or "1 device"


def why_not(config: TransformerConfig, one: Strategy) -> str:
    """Why the network cannot be cut so; empty if it can."""
    if config.num_heads % one.tp:
        return f"{config.num_heads} heads do not divide by tp {one.tp}"
    kv_heads = config.n_kv_heads
    if config.latent_attention is None and kv_heads % one.tp and one.tp % kv_heads:
        return f"{kv_heads} key-value heads and tp {one.tp}: neither divides the other"
    if config.delta is not None and config.delta.key_heads % one.tp:
        return f"{config.delta.key_heads} key heads of linear attention do not divide by tp {one.tp}"
    if one.pp > config.num_layers:
        return f"{config.num_layers} layers for pp {one.pp}"
    has_dense = not all(config.has_experts(layer) for layer in range(config.num_layers))
    widths = [(config.intermediate_size, one.ffn_tp)] if has_dense else []
    if config.experts is not None:
        widths.append((config.experts.intermediate_size, one.expert_tp))
    for width, cut in widths:
        if width % cut:
            return f"a feed-forward of {width} does not divide by {cut}"
    return ""


def strategies(config: TransformerConfig, device_num: int, fixed: Mapping[str, int]) -> Iterator[Strategy]:
    """Every strategy of an instance of at most `device_num` devices that has the values `fixed`.

    Errors: InputError if none has them, with the reason and the values that one of them may have.
    """
    found = False
    for one in _possible(config, device_num, fixed):
        found = True
        yield one
    if not found:
        pins = ", ".join(f"{name}={value}" for name, value in fixed.items())
        wrong = (one for one in _all(config, device_num, fixed) if _has(one, fixed))
        reason = next((f": {why_not(config, one)}" for one in wrong), "")
        raise InputError(
            f"no instance of at most {device_num} devices has {pins}{reason}; {_remedy(config, device_num, fixed)}"
        )


def _possible(config: TransformerConfig, device_num: int, fixed: Mapping[str, int]) -> Iterator[Strategy]:
    return (one for one in _all(config, device_num, fixed) if _has(one, fixed) and not why_not(config, one))


def _has(one: Strategy, fixed: Mapping[str, int]) -> bool:
    return all(getattr(one, name) == value for name, value in fixed.items())


def _remedy(config: TransformerConfig, device_num: int, fixed: Mapping[str, int]) -> str:
    """Which values one of the pins may have, beside the others."""
    for name in fixed:
        rest = {other: value for other, value in fixed.items() if other != name}
        values = sorted({getattr(one, name) for one in _possible(config, device_num, rest)})
        if values:
            shown = ", ".join(map(str, values[:_SHOWN])) + (f" … {values[-1]}" if len(values) > _SHOWN else "")
            return f"give {name}={shown}" if len(values) == 1 else f"give {name} one of {shown}"
    return "pin less, or ask for more devices"


def _all(config: TransformerConfig, device_num: int, fixed: Mapping[str, int]) -> Iterator[Strategy]:
    powers = [1 << n for n in range(device_num.bit_length()) if 1 << n <= device_num]
    odd = range(_ODD_STEP, device_num + 1, _ODD_STEP) if config.experts is not None else range(0)
    sizes = sorted({*powers, *odd, *_sizes_of(fixed)})
    for stage in sizes:
        is_power = stage & (stage - 1) == 0
        for pp in sorted({*_STAGES, fixed.get("pp", 1)}) if is_power or "pp" in fixed else (1,):
            if stage * pp > device_num:
                continue
            for tp in sorted({*powers, fixed.get("tp", 1)}):
                if stage % tp == 0 and (is_power or tp <= _ODD_STEP):
                    yield from _of_stage(config, pp, stage // tp, tp)


def _sizes_of(fixed: Mapping[str, int]) -> list[int]:
    return [fixed["tp"] * fixed["dp"]] if "tp" in fixed and "dp" in fixed else []


def _of_stage(config: TransformerConfig, pp: int, dp: int, tp: int) -> Iterator[Strategy]:
    if config.experts is None:
        yield Strategy(pp, dp, tp, 1, dp * tp)  # a dense network whose feed-forward is cut tp ways is several instances
        return
    yield Strategy(pp, dp, tp, dp * tp, tp)
    if dp * tp > 1:
        yield Strategy(pp, dp, tp, 1, tp)
