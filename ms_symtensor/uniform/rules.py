"""What a software that runs uniform layouts can say and does, as rules that a search keeps to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from model_zoo.config import TransformerConfig
from ms_symtensor.uniform.layout import Degrees, Selection, UniformLayout

Parts = tuple[Selection, ...]


def _one_form(config: TransformerConfig, degrees: Degrees) -> Iterator[Degrees]:
    yield degrees


def refused_by_mindspore(config: TransformerConfig, layout: UniformLayout) -> str:
    """Why MindSpore cannot run `layout`; empty: it can. See `program.one_stage.why_no_accumulation`."""
    adds_up = layout.stages.number == 1 < layout.stages.micro_batch_num
    if adds_up and not config.trains_vocabulary:
        return "MindSpore rejects micro-batches on one stage where the table of the embedding is frozen"
    return ""


def sharing_sequences(config: TransformerConfig, degrees: Degrees) -> Iterator[Degrees]:
    """`degrees` by AlltoAll of heads where that is possible, and with context parallelism by keys and values that go round."""
    if degrees.context_parallel == 1 or degrees.can_exchange_heads(config.n_kv_heads):
        yield degrees
    if degrees.context_parallel > 1:
        yield replace(degrees, exchanges_heads=False)


@dataclass(frozen=True)
class Rules:
    """The rules of one software.

    Attributes:
        forms: the ways in which it runs such degrees.
        refusal: why it cannot run a layout; empty: it can.
        levels: levels of the optimizer's sharding to try where there are several copies of the model.
        selections: parts of blocks to try to recompute by themselves before whole blocks are recomputed.
        mixes_context: context parallelism beside several samples of a micro-batch is tried without being asked for.
        threshold_KB: smaller parameters are not sharded by the optimizer.
        recomputes_alike: what is recomputed as a whole are as many first blocks of every model chunk.
        moves_blocks: stages may hold other numbers of blocks than even ones, which pinned degrees do not say.
    """

    forms: Callable[[TransformerConfig, Degrees], Iterator[Degrees]] = _one_form
    refusal: Callable[[TransformerConfig, UniformLayout], str] = refused_by_mindspore
    levels: tuple[int, ...] = (1,)
    selections: tuple[Parts, ...] = ((Selection.ATTENTION_CORE,),)
    mixes_context: bool = False
    threshold_KB: int = 64
    moves_blocks: bool = False
    recomputes_alike: bool = False


ANY = Rules()
"""What MindSpore runs of uniform layouts."""
