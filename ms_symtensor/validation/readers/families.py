"""What tables leave out about a model because its name says it: vocabulary, kind of feed-forward, biases, latent attention."""

import re
from dataclasses import dataclass, replace

from ms_symtensor.validation.configuration import LatentAttention, Norm, Position


@dataclass(frozen=True)
class Family:
    """Facts that all models of a name share; `vocab_size` 0: tables have to give it, `head_dim` 0: hidden / heads."""

    vocab_size: int = 0
    head_dim: int = 0
    gated: bool = True
    norm: Norm = "rms_norm"
    position: Position = "rotary"
    linear_bias: bool = False
    qkv_bias: bool = False
    tied_embeddings: bool = False
    latent_attention: LatentAttention | None = None
    shared_experts: int = 0
    dense_blocks: int = 0
    mtp_blocks: int = 0
    geglu: bool = False
    post_norms: bool = False
    logit_cap: float = 0.0
    window: int = 0
    window_period: int = 1


_LLAMA = Family()
_GPT = Family(
    vocab_size=50257, gated=False, norm="layer_norm", position="learned", linear_bias=True, qkv_bias=True,
    tied_embeddings=True,
)  # fmt: skip
DEEPSEEK_ATTENTION = LatentAttention(
    query_rank=1536, kv_rank=512, rope_head_dim=64, nope_head_dim=128, value_head_dim=128
)

# config.json of each model on huggingface.co; the first name that occurs counts, so the longer ones stand first
FAMILIES = (
    ("deepseekv3", Family(129280, latent_attention=DEEPSEEK_ATTENTION, shared_experts=1, dense_blocks=3, mtp_blocks=1)),
    ("deepseek3", Family(129280, latent_attention=DEEPSEEK_ATTENTION, shared_experts=1, dense_blocks=3, mtp_blocks=1)),
    ("deepseekv2", Family(102400, latent_attention=DEEPSEEK_ATTENTION, shared_experts=2, dense_blocks=1)),
    ("deepseek2", Family(102400, latent_attention=DEEPSEEK_ATTENTION, shared_experts=2, dense_blocks=1)),
    ("codellama", Family(32016)),
    ("llama3", Family(128256)),
    ("llama", Family(32000)),
    ("mixtral8x22b", Family(32768)),
    ("mixtral", Family(32000)),
    ("mistral", Family(32000, window=4096)),
    ("qwen3", Family(151936, head_dim=128)),
    ("qwen2moe", Family(151936, qkv_bias=True)),
    ("qwen250point5b", Family(151936, qkv_bias=True, tied_embeddings=True)),
    ("qwen2505b", Family(151936, qkv_bias=True, tied_embeddings=True)),
    ("qwen205b", Family(151936, qkv_bias=True, tied_embeddings=True)),
    ("qwen215b", Family(151936, qkv_bias=True, tied_embeddings=True)),
    ("qwen1505b", Family(151936, qkv_bias=True, tied_embeddings=True)),
    ("qwen", Family(151936, qkv_bias=True)),
    ("baichuan2", Family(125696)),
    ("baichuan", Family(64000)),
    ("chatglm", Family(65024, qkv_bias=True)),
    ("glm4", Family(151552, qkv_bias=True)),
    ("glm", Family(65024, qkv_bias=True)),
    ("codegeex", Family(65024, qkv_bias=True)),
    ("aquila", Family(100008)),
    ("internlm2", Family(92544)),
    ("internlm", Family(103168, linear_bias=False, qkv_bias=True)),
    ("gemma", Family(256000, geglu=True, tied_embeddings=True)),
    ("bloom", replace(_GPT, vocab_size=250880, position="alibi")),
    ("pangualpha", replace(_GPT, vocab_size=40000)),
    ("panguultra", Family(153376)),
    ("yi34b", Family(64000)),
    ("telechat", Family(131072)),
    ("minicpm", Family(122753, tied_embeddings=True)),
    ("grok", Family(131072)),
    ("phi35", Family(32064)),
    ("seedoss", Family(155136, head_dim=128, qkv_bias=True)),
    ("mpt", replace(_GPT, vocab_size=50368, linear_bias=False, qkv_bias=False)),
    ("gpt", _GPT),
    ("megatron", _GPT),
    ("turing", _GPT),
)
GEMMA2_9B_HIDDEN, GEMMA2_9B_HEAD_DIM, GEMMA2_27B_HEAD_DIM = 3584, 256, 128


def family_of(name: str, hidden_size: int = 0) -> Family:
    """The facts that go with the model called `name`; those of a Llama where no family is known."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    found = next((family for key, family in FAMILIES if key in plain), _LLAMA)
    if "gemma2" in plain and "gemma2b" not in plain:
        head_dim = GEMMA2_9B_HEAD_DIM if hidden_size == GEMMA2_9B_HIDDEN else GEMMA2_27B_HEAD_DIM
        return replace(found, head_dim=head_dim, post_norms=True, logit_cap=30.0, window=4096, window_period=2)
    return found
