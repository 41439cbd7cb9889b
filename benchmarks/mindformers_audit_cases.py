"""Hand strategies of MindFormers' own networks that `mindformers_audits` audits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.mindformers_models import Degrees

WHOLE: dict[str, Any] = {"recompute": True}
WHOLE_BUT_COMMUNICATION = {"recompute": True, "mp_comm_recompute": False}
SELECTED = {"select_recompute": True}
"""MindFormers' own selection: the activation of the feed-forward layer and its product."""


@dataclass(frozen=True)
class Case:
    """A network of `mindformers_models`, of so many layers under `degrees`, with MindSpore's `optimizer_level`, for a rank."""

    network: str
    degrees: Degrees
    level: str = ""
    layers: int = 2
    rank: int = 0

    @property
    def name(self) -> str:
        """What tells it from all others."""
        d = self.degrees
        numbers = {
            "dp": d.data,
            "tp": d.tensor,
            "cp": d.context,
            "ep": d.expert,
            "pp": d.stages,
            "m": d.micro_batch_num,
        }
        parts = [f"{key}{n}" for key, n in numbers.items() if n > 1]
        parts += [d.context_method] if d.context > 1 else []
        parts += ["no sp"] if d.tensor > 1 and not d.sequence else []
        parts += [d.dispatcher] if d.dispatcher != "alltoall" else []
        parts += [f"{key}={value}" for key, value in d.recompute.items()]
        parts += [self.level] if self.level else []
        parts += [f"{self.layers} layers"] if self.layers != 2 else []
        parts += [f"rank {self.rank}"] if self.rank else []
        return " ".join([self.network, *parts])


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _dense()
    yield from _experts()
    yield from _stages()


def _dense() -> Iterator[Case]:
    yield Case("llama", Degrees(data=2, tensor=4))
    yield Case("llama", Degrees(data=2, tensor=4, recompute=WHOLE))
    yield Case("llama", Degrees(data=2, tensor=4, recompute=WHOLE_BUT_COMMUNICATION), "level1", rank=5)
    yield Case("llama", Degrees(data=2, tensor=2, context=2), "level1")
    yield Case("llama", Degrees(data=4, tensor=2, sequence=False, recompute=SELECTED), "level2")
    yield Case("llama", Degrees(data=8), "level3")
    yield Case("qwen3", Degrees(data=2, tensor=4))
    yield Case("qwen3", Degrees(data=2, tensor=2, context=2), "level1")
    yield Case("qwen3", Degrees(data=2, tensor=2, context=2, context_method="ulysses_cp"), rank=3)
    yield Case("qwen3", Degrees(data=4, tensor=2, recompute=WHOLE), "level2")
    yield Case("qwen3", Degrees(data=8, recompute=SELECTED), "level1")
    yield Case("telechat3", Degrees(data=2, tensor=4, recompute=SELECTED))
    yield Case("telechat3", Degrees(tensor=4, context=2, recompute=WHOLE), "level1", rank=6)
    yield Case("telechat3", Degrees(data=4, tensor=2), "level3")


def _experts() -> Iterator[Case]:
    yield Case("qwen3_moe", Degrees(data=4, tensor=2, expert=4))
    yield Case("qwen3_moe", Degrees(data=4, tensor=2, expert=2), "level1", rank=3)
    yield Case("qwen3_moe", Degrees(data=8, expert=8, recompute=WHOLE), "level1")
    yield Case("qwen3_moe", Degrees(data=4, tensor=2, expert=4, recompute=WHOLE), "level1")
    yield Case("qwen3_moe", Degrees(data=4, tensor=2, expert=4, recompute=WHOLE_BUT_COMMUNICATION))
    yield Case("qwen3_moe", Degrees(data=2, tensor=2, context=2, expert=2), "level1")
    yield Case("qwen3_moe", Degrees(data=4, tensor=2, expert=4, dispatcher="alltoall_deredundency"))
    yield Case("qwen3_moe", Degrees(data=4, tensor=2, expert=4, recompute=WHOLE, dispatcher="alltoall_deredundency"))
    yield Case("qwen3_moe", Degrees(data=4, tensor=2, expert=4, dispatcher="alltoall_zero_redundancy"))
    yield Case("qwen3_moe", Degrees(data=4, tensor=2, expert=4, recompute=WHOLE, dispatcher="alltoall_zero_redundancy"))
    yield Case("deepseek3", Degrees(data=4, tensor=2, expert=4), layers=3)
    yield Case("deepseek3", Degrees(data=4, tensor=2, expert=4, recompute=WHOLE), "level1", layers=3)
    yield Case("deepseek3", Degrees(data=8, expert=8, recompute=WHOLE), "level1", layers=3)
    yield Case("deepseek3", Degrees(data=8, expert=4), "level2", layers=3, rank=6)
    yield Case("deepseek3", Degrees(data=4, tensor=2, expert=4, recompute=SELECTED), layers=3)


def _stages() -> Iterator[Case]:
    yield Case("llama", Degrees(data=2, tensor=2, stages=2, micro_batch_num=2))
    yield Case("llama", Degrees(tensor=2, stages=4, micro_batch_num=4, recompute=WHOLE), "level1", layers=4, rank=3)
    yield Case("qwen3", Degrees(data=2, tensor=2, stages=2, micro_batch_num=2), "level1", rank=4)
    yield Case("qwen3", Degrees(data=4, stages=2, micro_batch_num=4, recompute=WHOLE), "level2")
    yield Case("qwen3", Degrees(context=2, tensor=2, stages=2, micro_batch_num=2, recompute=SELECTED), rank=7)
    yield Case("telechat3", Degrees(data=2, tensor=2, stages=2, micro_batch_num=2, recompute=WHOLE), rank=5)
    yield Case("qwen3_moe", Degrees(data=2, tensor=2, expert=2, stages=2, micro_batch_num=2))
    yield Case("qwen3_moe", Degrees(data=4, expert=4, stages=2, micro_batch_num=2, recompute=WHOLE), "level1", rank=6)
    yield Case("deepseek3", Degrees(data=2, tensor=2, expert=2, stages=2, micro_batch_num=2), layers=4, rank=4)
    yield Case("deepseek3", Degrees(data=4, expert=4, stages=2, micro_batch_num=2, recompute=WHOLE), layers=4)
    yield Case("deepseek3", Degrees(data=4, expert=2, stages=2, micro_batch_num=2), "level1", layers=4, rank=5)
