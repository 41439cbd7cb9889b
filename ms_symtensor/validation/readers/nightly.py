"""vllm_ascend_nightly.csv: tokens a second that vllm-ascend's nightly benchmarks ask for, by model.

The times that are compared are seconds per generated token of all devices together.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from model_zoo import dimensions_of
from model_zoo.config import BlockKind, Experts, LatentSizes, TransformerConfig
from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.serving.closed_loop import Engine, Load, mixed_rate, split_rate
from ms_symtensor.serving.request import Request, Tokens
from ms_symtensor.serving.strategy import Strategy, why_not
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Form, Timing

COLUMNS = (
    "model", "nodes", "npu_per_node", "dataset", "out_len", "concurrency", "request_rate", "baseline_output_tokens_per_s",
    "mixed", "prefill", "decode",
)  # fmt: skip
_UNLIMITED_B, _POSITIONS = 1 << 62, 1 << 30
_NODES_OF_A2, _SEQS, _BATCHED, _MOST = 8, 256, 8192, 1 << 24
"""A node of Atlas A2 has 8 devices, one of A3 16. vLLM's defaults of --max-num-seqs and --max-num-batched-tokens."""
_STATE_KEYS = 1024
"""A gated linear layer of Qwen3.5 keeps 64 heads of 128 x 128 numbers: as much as 1,024 keys and values of 2 heads of 256."""
_DENSE_OF_GLM, _INDEXED_KEYS = 3, 2048
"""GLM-5's indexer (index_topk) leaves a token 2,048 keys; its own scores are not priced."""


@dataclass(frozen=True)
class Served:
    """`engines`: one that does both, or one for each phase."""

    request: Request
    engines: tuple[Engine, ...]
    load: Load

    def seconds(self, cluster: Cluster) -> float:
        """Of all devices for a generated token."""
        request = replace(self.request, cluster=cluster)
        first, last = self.engines[0], self.engines[-1]
        if first is last:
            return 1 / mixed_rate(request, first, self.load)
        return 1 / split_rate(request, first, last, self.load)


def timing(row: Row) -> Timing:
    """UnusableRowError for a model whose dimensions are not known here, and a data set that does not name a prompt's length."""
    name, data = row.text("model"), row.text("dataset")
    config = _config(name)
    length = re.search(r"in(\d+)(k|M|)", data)
    if length is None:
        raise UnusableRowError("the data set does not say how long prompts are")
    prompt = int(length[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[length[2]]
    output, concurrency = row.count("out_len"), row.count("concurrency")
    said = [text for text in (row.text("mixed"), row.text("prefill"), row.text("decode")) if text]
    if len(said) not in (1, 2):
        raise UnusableRowError("neither one engine nor one for each phase is described")
    longest = re.search(r"\blen(\d+)", said[0])
    if max(prompt, output, concurrency) > _MOST or (longest is not None and prompt > int(longest[1])):
        raise UnusableRowError("prompts are longer than what the engine takes")
    engines = tuple(_engine(config, text) for text in said)
    each = row.optional_count("npu_per_node")
    devices = row.count("nodes") * each if each else sum(one.one.device_num for one in engines)
    if len(engines) == 2:
        rest = devices - engines[1].one.device_num
        engines = (replace(engines[0], count=max(1, rest // engines[0].one.device_num)), engines[1])
    share = re.search(r"prefix(\d+)", data)
    cached = 0.0 if "noprefix" in said[0] or share is None else min(int(share[1]), 100) / 100
    rate = row.optional_number("request_rate") or 0.0
    cluster = "atlas_800t_a2" if each == _NODES_OF_A2 else "atlas_800t_a3"
    words = name.lower()
    weights = "int4" if "w4a8" in words else "int8" if "w8a8" in words else "bfloat16"
    cache = "int8" if words.endswith("c8") else "bfloat16"
    tokens = Tokens(prompt, prompt, output)
    request = Request(config, load(cluster), devices, tokens, _UNLIMITED_B, weights=weights, cache=cache)
    run = Served(request, engines, Load(concurrency, rate, cached))
    short = name.rpartition("/")[2]
    return Timing(row.line, short, cluster, run, 1 / row.positive("baseline_output_tokens_per_s"), model=short)


FORM = Form("vllm_ascend_nightly", COLUMNS, timing, has_models=True)


def _engine(config: TransformerConfig, text: str) -> Engine:
    """`dp4 tp8 ep seqs16 tokens4096 mtp1 …`: what an engine is started with."""
    found = dict(re.findall(r"\b(dp|tp|pp|seqs|tokens|mtp)(\d+)", text))
    dp, tp, pp = (int(found.get(name, 1)) for name in ("dp", "tp", "pp"))
    ep = dp * tp if config.experts is not None and re.search(r"\bep\b", text) else 1
    one = Strategy(pp, dp, tp, ep, tp if config.experts is not None else dp * tp)
    if reason := why_not(config, one):
        raise UnusableRowError(reason)
    return Engine(one, 1, int(found.get("seqs", _SEQS)), int(found.get("tokens", _BATCHED)), int(found.get("mtp", 0)))


def _experts(of: TransformerConfig, **sizes: Any) -> Experts:
    assert of.experts is not None
    return replace(of.experts, **sizes)


def _config(name: str) -> TransformerConfig:
    """The network called `name`; its last letters are how it is stored. UnusableRowError if its dimensions are not known here."""
    plain = name.rpartition("/")[2].lower()
    if "310" in plain:
        raise UnusableRowError("on Atlas 300I, of which no cluster is known")
    found = next((config for known, config in _networks() if plain.startswith(known)), None)
    if found is None:
        raise UnusableRowError(f"the dimensions of {name} are not known")
    return replace(found, max_position_embeddings=_POSITIONS)


def _networks() -> tuple[tuple[str, TransformerConfig], ...]:
    """config.json of each model on huggingface.co. Of Qwen3.5 three of four layers are gated linear attention."""
    deepseek = replace(dimensions_of("deepseek_v3"), second_token_weight=0.0)
    qwen = dimensions_of("qwen3_30b_a3b")
    kimi = replace(
        deepseek, num_heads=64, n_kv_heads=64, dense_layers=1, vocab_size=163840,
        experts=_experts(deepseek, number=384, groups=1, groups_per_token=1),
    )  # fmt: skip
    glm = replace(
        deepseek, hidden_size=6144, num_layers=78, num_heads=64, n_kv_heads=64, head_dim=256, intermediate_size=12288,
        vocab_size=154880, experts=_experts(deepseek, groups=1, groups_per_token=1),
        latent_attention=LatentSizes(query_rank=2048, key_value_rank=512, rotary_head_dim=64, value_head_dim=256),
        kinds=tuple(BlockKind(experts=n >= _DENSE_OF_GLM, window=_INDEXED_KEYS) for n in range(78)),
    )  # fmt: skip
    minimax = replace(
        qwen, hidden_size=3072, num_layers=62, num_heads=48, n_kv_heads=8, vocab_size=200064,
        experts=_experts(qwen, number=256, intermediate_size=1536),
    )  # fmt: skip
    large = replace(
        qwen, hidden_size=4096, num_layers=94, num_heads=64, intermediate_size=12288,
        experts=_experts(qwen, intermediate_size=1536),
    )  # fmt: skip
    return (
        ("deepseek-v3", deepseek),
        ("deepseek-r1", deepseek),
        ("kimi-k2", kimi),
        ("minimax-m2.5", minimax),
        ("glm-5.1", glm),
        ("qwen3-235b", large),
        ("qwen3-30b-a3b", qwen),
        ("qwen3.5-397b", _linear(qwen, (4096, 60, 32), (512, 10, 1024))),
        ("qwen3.5-122b", _linear(qwen, (3072, 48, 32), (256, 8, 1024))),
        ("qwen3.6-35b", _linear(qwen, (2048, 40, 16), (256, 8, 512))),
    )


def _linear(of: TransformerConfig, sizes: tuple[int, int, int], experts: tuple[int, int, int]) -> TransformerConfig:
    """`sizes`: hidden, layers and heads; `experts`: their number, how many a token has, and their width."""
    (hidden, layers, heads), (number, per_token, width) = sizes, experts
    kinds = tuple(BlockKind(experts=True, window=0 if n % 4 == 3 else _STATE_KEYS) for n in range(layers))
    return replace(
        of, hidden_size=hidden, num_layers=layers, num_heads=heads, n_kv_heads=2, head_dim=256, vocab_size=248320,
        experts=_experts(of, number=number, per_token=per_token, intermediate_size=width, shared_size=width), kinds=kinds,
    )  # fmt: skip
