"""What is asked of serving."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from model_zoo.config import BlockKind, TransformerConfig
from ms_symtensor.cluster.topology import MOST_DEVICES, Cluster
from ms_symtensor.errors import InputError

WEIGHT_BITS = {"bfloat16": 16, "int8": 8, "int4": 4}
PHASES = ("prefill", "decode")
PINNED = ("tp", "dp", "pp", "ep", "requests", "tokens")
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+) *(ms|s)")
SCALE_GROUP = 128
"""Weights of 4 bits have a scale of 16 bits for so many of one row, those of 8 bits one for a row (vllm-ascend, W4A8, W8A8)."""


@dataclass(frozen=True)
class Tokens:
    """Prompts' lengths are spread evenly from `least` to `most` tokens; `output` tokens are generated for each."""

    least: int
    most: int
    output: int

    @property
    def input(self) -> float:
        """The mean length of a prompt."""
        return (self.least + self.most) / 2

    @property
    def deviation(self) -> float:
        """The standard deviation of that, as a share of the mean."""
        return (self.most - self.least) / math.sqrt(12) / self.input

    @property
    def deviation_of_squares(self) -> float:
        """The same of the squares of lengths, which attention's work grows with."""
        a, b = self.least, self.most
        square, fourth = (a * a + a * b + b * b) / 3, (a**4 + a**3 * b + a * a * b * b + a * b**3 + b**4) / 5
        return math.sqrt(max(0.0, fourth / square**2 - 1))

    @property
    def seen(self) -> float:
        """Keys that a token of a prompt sees on average: half of its prompt, of which the longer ones have more tokens."""
        return self.input * (1 + self.deviation**2) / 2

    @property
    def whole(self) -> int:
        """The most tokens of a request."""
        return self.most + self.output


@dataclass(frozen=True)
class Request:
    """Serve `config` on `device_num` devices of `cluster`, within `limit_B` bytes of each.

    `ttft_s`, `tpot_s`: limits of the time to the first token and per token after it, None: there is none. `fixed`: what a phase's
    instance must have, by phase ("prefill", "decode") and name.
    """

    config: TransformerConfig
    cluster: Cluster
    device_num: int
    tokens: Tokens
    limit_B: int
    ttft_s: float | None = None
    tpot_s: float | None = None
    weights: str = "bfloat16"
    cache: str = "bfloat16"
    fixed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.config.causal or self.config.lora is not None:
            raise InputError(f"{self.config.name} does not generate: give a decoder without adapters")
        if self.config.is_hybrid:
            raise InputError(
                f"{self.config.name}: states of state-space layers have no price in serving; plan its training, or serve another"
                " network"
            )
        if self.tokens.whole > self.config.max_position_embeddings:
            raise InputError(
                f"{self.tokens.whole} tokens of a request are more than the {self.config.max_position_embeddings} positions of"
                f" {self.config.name}: ask for fewer"
            )
        most = self.cluster.max_ranks
        if most is not None and self.device_num > most:
            raise InputError(f"cluster {self.cluster.name} has {most} devices, not {self.device_num}: ask for fewer")
        if self.device_num > MOST_DEVICES:
            raise InputError(
                f"device_num is {self.device_num}: instances are on at most {MOST_DEVICES} devices, more than any cluster has"
            )

    @cached_property
    def layers_of_kinds(self) -> Mapping[BlockKind, int]:
        """How many layers are of each kind, whatever their rotation."""
        config = self.config
        kinds = config.kinds or tuple(config.kind(layer) for layer in range(config.num_layers))
        return Counter(replace(kind, rotary=True, rotary_base=0.0) for kind in kinds)

    @property
    def cache_element_B(self) -> float:
        """Bytes of an element of the cache."""
        return WEIGHT_BITS[self.cache] / 8

    @property
    def stored_as(self) -> str:
        """A type of whole bytes in which the weights move: 4 bits are packed in pairs, so at most these."""
        return "bfloat16" if self.weights == "bfloat16" else "int8"

    @property
    def weight_B(self) -> float:
        """Bytes of an element of a linear layer's weight, its share of a scale included."""
        bits = WEIGHT_BITS[self.weights]
        return bits / 8 + (2 / SCALE_GROUP if bits == 4 else 0)


def tokens_of(prompt: str, output: int) -> Tokens:
    """What `--input-tokens` says, 3500 or 512-8192. InputError if that is no length."""
    ends = prompt.split("-")
    if len(ends) > 2 or not all(end.isdecimal() and int(end) > 0 for end in ends) or int(ends[0]) > int(ends[-1]):
        raise InputError(
            f"--input-tokens is {prompt!r}: give a number of tokens, or the least and the most, such as 512-8192"
        )
    return Tokens(int(ends[0]), int(ends[-1]), output)


def seconds_of(option: str, text: str | None) -> float | None:
    """What `--ttft` or `--tpot` says, 2s or 50ms. InputError if that is no time."""
    if text is None:
        return None
    read = _TIME.fullmatch(text.strip())
    if read is None or float(read[1]) <= 0:
        raise InputError(f"{option} is {text!r}: give a time with its unit, such as 50ms or 2s")
    return float(read[1]) * (1e-3 if read[2] == "ms" else 1.0)


def fixed_of(texts: Sequence[str], option: str = "--fix") -> dict[str, dict[str, int]]:
    """What `--fix` says, NAME=N or PHASE.NAME=N each, by phase. InputError for other names, or numbers."""
    found: dict[str, dict[str, int]] = {phase: {} for phase in PHASES}
    seen = set[str]()
    for text in texts:
        name, _, value = text.strip().rpartition("=")
        phase, _, last = name.rpartition(".")
        if last not in PINNED or phase not in ("", *PHASES) or not value.isdecimal() or int(value) < 1:
            raise InputError(
                f"{option} {text!r}: give NAME=N with one of {', '.join(PINNED)}, such as tp=8 or decode.tp=8"
            )
        if name in seen:
            raise InputError(f"{option} pins {name} twice: give it once")
        seen.add(name)
        for each in (phase,) if phase else PHASES:
            found[each][last] = int(value)
    return found
