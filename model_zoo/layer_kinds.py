"""Which kind each block of a network is, from what its config.json says about layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from model_zoo.config import BlockKind
from ms_symtensor.errors import InputError

FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
INDEXED = "indexed_attention"  # of all blocks alike, or of none
MOE, MLP = "moe", "mlp"  # of blocks that are one of these alone
_OLD_NAMES = {"mamba": LINEAR, "attention": FULL, "M": LINEAR, "*": FULL, "E": MOE, "-": MLP}
Facts = Mapping[str, Any]


def kinds_of(facts: Facts, number: int) -> tuple[BlockKind, ...]:
    """The kinds of `number` blocks.

    Errors: InputError naming an attention that the zoo has not.
    """
    types, has_experts = attention_types(facts, number), _has_experts(facts)
    if facts.get("one_branch"):
        return tuple(_alone(kind) for kind in types)
    turns = _rotated(facts, number)
    if facts.get("rotates_windows") and facts.get("window"):
        turns = [kind != FULL for kind in types]
    width = dict.fromkeys((FULL, LINEAR, INDEXED), 0) | {
        SLIDING: int(facts.get("window") or 0), CHUNKED: int(facts.get("chunk") or 0),
    }  # fmt: skip
    bases = _bases(facts, types)
    shares = _shares_choice(facts, number)
    return tuple(
        BlockKind(has_experts(n), width[kind], turns[n], bases[n], kind == LINEAR, shares[n])
        for n, kind in enumerate(types)
    )


def _alone(kind: str) -> BlockKind:
    feeds = kind in (MOE, MLP)
    return BlockKind(kind == MOE, rotary=False, linear=kind == LINEAR, only="feed_forward" if feeds else "attention")


def attention_types(facts: Facts, number: int) -> list[str]:
    """The attention of every block, by transformers' names."""
    if facts.get("layer_types"):
        return [_OLD_NAMES.get(one, one) for one in _every(facts["layer_types"], number, "layer_types")]
    if "attention_layers" in facts:  # Bamba
        full = facts["attention_layers"] or ()
        return [FULL if n in full else LINEAR for n in range(number)]
    if facts.get("full_step"):  # Qwen3-Next: of so many blocks the last has full attention
        return [LINEAR if (n + 1) % facts["full_step"] else FULL for n in range(number)]
    if facts.get(
        "delta.period"
    ):  # Kimi Linear: the first of so many blocks has full attention, but for that of the network
        return [FULL if n and n % facts["delta.period"] == 0 else LINEAR for n in range(number)]
    if facts.get("chunk"):  # Llama 4: of those that are rotated
        return [CHUNKED if turns else FULL for turns in _rotated(facts, number)]
    if not facts.get("window") or not facts.get("uses_window", True):
        return [FULL] * number
    full = int(facts.get("full_layers") or 0)  # Qwen 2: so many first blocks have no window
    period = facts.get("window_period") or 0  # Gemma 2 and 3: the last block of so many has none; as a pattern: LLLG
    period, shift = len(period) if isinstance(period, str) else int(period), 1 - int(facts.get("window_shift") or 0)
    return [FULL if n < full or (period and (n + shift) % period == 0) else SLIDING for n in range(number)]


def _shares_choice(facts: Facts, number: int) -> list[bool]:
    """Which blocks take the choice of keys of a block before them: told one by one, in a pattern, or all but every so many."""
    if not facts.get("indexer.keys"):
        return [False] * number
    types, pattern = facts.get("indexer_types"), facts.get("indexer_pattern")
    if types is not None or pattern is not None:
        key, said = ("index_topk_pattern", list(pattern or ())) if types is None else ("indexer_types", types)
        if unknown := {*said} - {"full", "shared", "F", "S"}:
            raise InputError(f"{key} has {sorted(unknown)[0]!r}: known are full and shared (F and S in a pattern)")
        return [one in ("shared", "S") for one in _every(said, number, key)]
    step, offset = facts.get("indexer_step") or 1, facts.get("indexer_offset")
    first = 2 if offset is None else offset
    return [max(n - first + 1, 0) % step > 0 for n in range(number)]


def _bases(facts: Facts, types: Sequence[str]) -> list[float]:
    """The base of every block's rotation; 0: the network's."""
    if facts.get("layer_bases"):
        network = facts.get("rotary_base")
        return [
            0.0 if base == network else float(base)
            for base in _every(facts["layer_bases"], len(types), "layer_rope_theta")
        ]
    local = float(facts.get("local_base") or 0.0)
    return [local if kind == SLIDING else 0.0 for kind in types]


def _rotated(facts: Facts, number: int) -> list[bool]:
    if facts.get("layer_bases"):
        return [base > 0 for base in _every(facts["layer_bases"], number, "layer_rope_theta")]
    if facts.get("rotated_layers"):
        return [bool(turns) for turns in _every(facts["rotated_layers"], number, "no_rope_layers")]
    step = int(facts.get("unrotated_step") or 0)
    return [not step or (n + 1) % step > 0 for n in range(number)]


def _has_experts(facts: Facts) -> Callable[[int], bool]:
    if not facts.get("experts.number"):
        return lambda n: False
    if facts.get("expert_layers") is not None:
        return frozenset(facts["expert_layers"]).__contains__
    if facts.get("mlp_types"):
        types = facts["mlp_types"]
        return lambda n: n < len(types) and types[n] == "sparse"
    frequency = facts.get("experts_frequency") or 1
    if isinstance(frequency, Sequence):
        return lambda n: n < len(frequency) and bool(frequency[n])
    first = max(int(facts.get(name) or 0) for name in ("dense_first", "experts_start"))
    last, step = facts.get("experts_end"), int(facts.get("experts_step") or 1)
    dense = frozenset(facts.get("dense_layers") or ())
    return lambda n: (
        n >= first
        and (last is None or last < 0 or n <= last)
        and (n + 1) % step == 0
        and n % frequency == 0
        and n not in dense
    )


def _every(values: Sequence[Any], number: int, key: str) -> list[Any]:
    """The first `number` of the values that `key` has for every layer."""
    if len(values) < number:
        raise InputError(f"{key} says what {len(values)} of {number} layers are: give as many")
    return list(values[:number])
