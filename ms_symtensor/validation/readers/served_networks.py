"""What tables of serving ask: networks, which they call by name, and requests that take a time."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from model_zoo import dimensions_of
from model_zoo.config import BlockKind, DeltaSizes, Experts, IndexerSizes, LatentSizes, TransformerConfig
from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.serving.request import Request, Tokens
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers.published import published_model

_POSITIONS = 1 << 30
UNLIMITED_B = 1 << 62
"""Bytes of a device of which a row is known to have been within."""
MOST = 1 << 24
"""Tokens, requests and devices that nobody serves more of."""
_INDEXER = IndexerSizes(heads=64, head_dim=128, keys=2048)
"""That of DeepSeek-V3.2; GLM-5's has 32 heads."""


@dataclass(frozen=True)
class Asked:
    """What takes `of(request)` seconds, of a step, a request or a token, on the cluster of the request."""

    request: Request
    of: Callable[[Request], float]

    def seconds(self, cluster: Cluster) -> float:
        """On `cluster`. UnusableRowError where nothing fits."""
        try:
            return self.of(replace(self.request, cluster=cluster))
        except (InputError, InfeasibleError) as error:
            raise UnusableRowError(str(error)) from None


def request_of(
    config: TransformerConfig,
    cluster: str,
    device_num: int,
    prompt: int,
    output: int,
    limit_B: int = UNLIMITED_B,
    **more: Any,
) -> Request:
    """Prompts and outputs of one length each on devices of the cluster called `cluster`."""
    return Request(config, load(cluster), device_num, Tokens(prompt, prompt, output), limit_B, **more)


def stored_as(words: str) -> str:
    """The type of weights that W8A8 or w4a8 in `words` stands for; bfloat16 where they say nothing."""
    found = re.search(r"w([48])a8", words, re.IGNORECASE)
    return f"int{found[1]}" if found else "bfloat16"


def _experts(of: TransformerConfig, **sizes: Any) -> Experts:
    assert of.experts is not None
    return replace(of.experts, **sizes)


def served_network(name: str) -> TransformerConfig:
    """The network called `name`; its last letters are how it is stored. UnusableRowError if its dimensions are not known here."""
    plain = name.rpartition("/")[2].lower()
    found = next((config for known, config in _networks() if plain.startswith(known)), None)
    return dense_network(published_model(name), name) if found is None else _of_any_length(found)


def _of_any_length(config: TransformerConfig) -> TransformerConfig:
    return replace(config, max_position_embeddings=_POSITIONS, second_token_weight=0.0)


def _networks() -> tuple[tuple[str, TransformerConfig], ...]:
    """config.json of each model on huggingface.co. Of Qwen3-Next and Qwen3.5 three of four layers are gated linear attention."""
    deepseek = dimensions_of("deepseek_v3")
    qwen = dimensions_of("qwen3_30b_a3b")
    kimi = replace(
        deepseek, num_heads=64, n_kv_heads=64, dense_layers=1, vocab_size=163840,
        experts=_experts(deepseek, number=384, groups=1, groups_per_token=1),
    )  # fmt: skip
    glm = replace(
        deepseek, hidden_size=6144, num_layers=78, num_heads=64, n_kv_heads=64, head_dim=256, intermediate_size=12288,
        vocab_size=154880, experts=_experts(deepseek, groups=1, groups_per_token=1),
        latent_attention=LatentSizes(query_rank=2048, key_value_rank=512, rotary_head_dim=64, value_head_dim=256),
        indexer=replace(_INDEXER, heads=32),
    )  # fmt: skip
    minimax = replace(
        qwen, hidden_size=3072, num_layers=62, num_heads=48, n_kv_heads=8, vocab_size=200064,
        experts=_experts(qwen, number=256, intermediate_size=1536),
    )  # fmt: skip
    large = replace(
        qwen, hidden_size=4096, num_layers=94, num_heads=64, intermediate_size=12288,
        experts=_experts(qwen, intermediate_size=1536),
    )  # fmt: skip
    coder = replace(
        qwen, hidden_size=6144, num_layers=62, num_heads=96, n_kv_heads=8,
        experts=_experts(qwen, number=160, intermediate_size=2560),
    )  # fmt: skip
    return (
        ("deepseek-v3.2", replace(deepseek, indexer=_INDEXER)),
        ("deepseek-v3", deepseek),
        ("deepseek-r1", deepseek),
        ("kimi-k2", kimi),
        ("minimax-m2.5", minimax),
        ("glm-5.1", glm),
        ("qwen3-235b", large),
        ("qwen3-30b-a3b", qwen),
        ("qwen3-coder-480b", coder),
        ("qwen3-next-80b", _linear(qwen, (2048, 48, 16, 32), (512, 10, 512), "")),
        ("qwen3.5-397b", _linear(qwen, (4096, 60, 32, 64), (512, 10, 1024))),
        ("qwen3.5-122b", _linear(qwen, (3072, 48, 32, 64), (256, 8, 1024))),
        ("qwen3.6-35b", _linear(qwen, (2048, 40, 16, 32), (256, 8, 512))),
    )


def _linear(
    of: TransformerConfig, sizes: tuple[int, int, int, int], experts: tuple[int, int, int], state: str = "float32"
) -> TransformerConfig:
    """`sizes`: hidden, layers, heads, and heads of linear attention's values; `experts`: their number, how many a token has, and
    their width.
    """
    (hidden, layers, heads, values), (number, per_token, width) = sizes, experts
    kinds = tuple(BlockKind(experts=True, linear=n % 4 < 3) for n in range(layers))
    expert = _experts(
        of, number=number, per_token=per_token, intermediate_size=width, shared_size=width, shared_gate=True
    )
    return replace(
        of, hidden_size=hidden, num_layers=layers, num_heads=heads, n_kv_heads=2, head_dim=256, vocab_size=248320,
        experts=expert, kinds=kinds, delta=DeltaSizes(16, values, 128, 128, state_dtype=state), attention_gate=True,
    )  # fmt: skip


def dense_network(of: TransformerConfig, name: str) -> TransformerConfig:
    """UnusableRowError for a network with experts or latent attention."""
    if of.experts is not None or of.latent_attention is not None:
        raise UnusableRowError("the dimensions of its experts, or of its latent attention, are not known")
    return replace(
        of, name=name, max_position_embeddings=_POSITIONS, position="rotary", kinds=(), seq_length=1, batch_size=1
    )
