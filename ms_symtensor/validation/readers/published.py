"""Dimensions of models that tables call by name only."""

import re
from dataclasses import replace

from model_zoo.config import TransformerConfig
from ms_symtensor.validation.configuration import mixture
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers.families import model_like

# config.json of each model on huggingface.co, unless another source stands behind it; the longer names first
_PUBLISHED = {
    "deepseek(v3|r1)": model_like("deepseekv3", 7168, 61, 128, 128, 18432, experts=mixture(256, 8, 2048, 1)),
    "deepseek33b": model_like("deepseek", 7168, 62, 56, 8, 19200, 32256),
    "deepseekcoder157b": model_like("deepseek", 4096, 30, 32, 32, 11008, 102400),
    "deepseekv2": model_like("deepseekv2", 5120, 60, 128, 128, 12288, experts=mixture(160, 6, 1536, 2)),
    "codellama34b": model_like("codellama", 8192, 48, 64, 8, 22016),
    "llama31405b": model_like("llama3", 16384, 126, 128, 8, 53248),
    "llama3[13]?70b": model_like("llama3", 8192, 80, 64, 8, 28672),
    "llama31?8b": model_like("llama3", 4096, 32, 32, 8, 14336),
    "llama321b": model_like("llama3", 2048, 16, 32, 8, 8192, tied_embeddings=True),
    "llama323b": model_like("llama3", 3072, 28, 24, 8, 8192, tied_embeddings=True),
    "llama2?70b": model_like("llama2", 8192, 80, 64, 8, 28672),
    "llama234b": model_like("llama2", 8192, 48, 64, 8, 22016),
    "llama213b": model_like("llama2", 5120, 40, 40, 40, 13824),
    "llama27b": model_like("llama2", 4096, 32, 32, 32, 11008),
    "llama65b": model_like("llama", 8192, 80, 64, 64, 22016),
    "llama3[03]b": model_like("llama", 6656, 60, 52, 52, 17920),
    "llama13b": model_like("llama", 5120, 40, 40, 40, 13824),
    "llama7b": model_like("llama", 4096, 32, 32, 32, 11008),
    "llama2": model_like("llama2", 4096, 32, 32, 32, 11008),  # "Llama2 32L", "Llama2-4L": of the 7B's width
    "mixtral8x22b": model_like("mixtral8x22b", 6144, 56, 48, 8, 16384, experts=mixture(8, 2, 16384)),
    "mixtral": model_like("mixtral", 4096, 32, 32, 8, 14336, experts=mixture(8, 2, 14336)),
    "mistral7b": model_like("mistral", 4096, 32, 32, 8, 14336),
    "aquila234b": model_like("aquila", 6144, 60, 48, 8, 24576),
    "aquila2?7b": model_like("aquila", 4096, 32, 32, 32, 11008),
    "baichuan213b": model_like("baichuan2", 5120, 40, 40, 40, 13696),
    "baichuan27b": model_like("baichuan2", 4096, 32, 32, 32, 11008),
    "baichuan13b": model_like("baichuan", 5120, 40, 40, 40, 13696),
    "baichuan7b": model_like("baichuan", 4096, 32, 32, 32, 11008),
    "bloom7b": model_like("bloom", 4096, 30, 32, 32, 16384),
    "bloom176b": model_like("bloom", 14336, 70, 112, 112, 57344),
    "(chat)?glm[23]6b|codegeex26b|glm32k": model_like("chatglm", 4096, 28, 32, 2, 13696),
    "glm49b": model_like("glm4", 4096, 40, 32, 2, 13696),
    "internlm27b": model_like("internlm2", 4096, 32, 32, 8, 14336),
    "internlm220b": model_like("internlm2", 6144, 48, 48, 8, 16384),
    "internlm65b": model_like("internlm", 8192, 80, 64, 64, 22016),
    "internlm7b": model_like("internlm", 4096, 32, 32, 32, 11008),
    "internlm20b": model_like("internlm", 5120, 60, 40, 40, 13824),
    "gemma2b": model_like("gemma", 2048, 18, 8, 1, 16384),
    "gemma7b": model_like("gemma", 3072, 28, 16, 16, 24576, head_dim=256),
    "gemma29b": model_like("gemma2", 3584, 42, 16, 8, 14336),
    "gemma227b": model_like("gemma2", 4608, 46, 32, 16, 36864),
    "qwen15110b": model_like("qwen", 8192, 80, 64, 8, 49152),
    "qwen1572b": model_like("qwen", 8192, 80, 64, 64, 24576),
    "qwen1532b": model_like("qwen", 5120, 64, 40, 8, 27392),
    "qwen1514b": model_like("qwen", 5120, 40, 40, 40, 13696),
    "qwen157b": model_like("qwen", 4096, 32, 32, 32, 11008),
    "qwen154b": model_like("qwen", 2560, 40, 20, 20, 6912),
    "qwen1518b": model_like("qwen", 2048, 24, 16, 16, 5504),
    "qwen1505b": model_like("qwen", 1024, 24, 16, 16, 2816),
    "qwen2572b": model_like("qwen", 8192, 80, 64, 8, 29568),
    "qwen2532b": model_like("qwen", 5120, 64, 40, 8, 27648),
    "qwen2514b": model_like("qwen", 5120, 48, 40, 8, 13824),
    r"qwen2\.57b": model_like("qwen", 3584, 28, 28, 4, 18944),  # Qwen2.5-7B; the next one is Qwen2-57B
    "qwen257b": model_like("qwen2moe", 3584, 28, 28, 4, 18944, experts=mixture(64, 8, 2560, 8)),
    "qwen272b": model_like("qwen", 8192, 80, 64, 8, 29568),
    "qwen27b": model_like("qwen", 3584, 28, 28, 4, 18944),
    "qwen215b": model_like("qwen", 1536, 28, 12, 2, 8960),
    "qwen205b": model_like("qwen", 896, 24, 14, 2, 4864),
    "qwen33?8b": model_like("qwen3", 4096, 36, 32, 8, 12288),
    "qwen314b": model_like("qwen3", 5120, 40, 40, 8, 17408),
    "qwen3235b": model_like("qwen3", 4096, 94, 64, 4, 12288, experts=mixture(128, 8, 1536)),
    "qwen332b": model_like("qwen3", 5120, 64, 64, 8, 25600),
    "qwen330b": model_like("qwen3", 2048, 48, 32, 4, 6144, experts=mixture(128, 8, 768)),
    "qwen72b": model_like("qwen", 8192, 80, 64, 64, 24576),
    "qwen14b": model_like("qwen", 5120, 40, 40, 40, 13696),
    "qwen7b": model_like("qwen", 4096, 32, 32, 32, 11008),
    "minicpm8x2b": model_like("minicpm", 2304, 40, 36, 36, 5760, experts=mixture(8, 2, 5760)),
    "minicpm2b": model_like("minicpm", 2304, 40, 36, 36, 5760),
    "telechat7b": model_like("telechat", 4096, 30, 32, 32, 12288, 160256),
    # MindSpeed-LLM, examples/gpt4: a block of 12288 with four experts; arXiv 2005.14165, table 2.1: GPT-3
    "gpt44x13b": model_like("gpt", 12288, 10, 96, 96, 49152, experts=mixture(4, 2, 49152)),
    "gpt3175b": model_like("gpt", 12288, 96, 96, 96, 49152),
    "gpt315b": model_like("gpt", 12288, 8, 96, 96, 49152),
    "gpt213b": model_like("gpt", 5120, 40, 40, 40, 20480),
    "pangualpha13b": model_like("pangualpha", 5120, 40, 40, 40, 20480),
    "yi34b": model_like("yi34b", 7168, 60, 56, 8, 20480),
    # arXiv 2504.07866, section 2: Pangu Ultra
    "panguultra135b": model_like("panguultra", 12288, 94, 96, 8, 28672),
    "gptj6b": model_like(
        "gptj", 4096, 28, 16, 16, 16384, 50400, activation="gelu", norm="layer_norm", linear_bias=True
    ),
    "falcon180b": model_like("falcon", 14848, 80, 232, 8, 59392, 65024, activation="gelu", norm="layer_norm"),
    "falcon40b": model_like("falcon", 8192, 60, 128, 8, 32768, 65024, activation="gelu", norm="layer_norm"),
    "falcon7b": model_like("falcon", 4544, 32, 71, 1, 18176, 65024, activation="gelu", norm="layer_norm"),
    "grok1": model_like("grok", 6144, 64, 48, 8, 32768, experts=mixture(8, 2, 32768)),
    # No transformer: one of Mamba2-8B's width and depth (arXiv 2406.07887) stands in, for what recomputation and cuts do
    "mamba2": model_like("llama2", 4096, 56, 32, 32, 11008),
}


def published_model(name: str) -> TransformerConfig:
    """The model called `name`, such as `Llama2-13B`, `Mixtral 6L (CI)`: `6L` for its number of blocks; or, as MindFormers names
    its files, `finetune_llama2_70b_bf16_32p`.

    UnusableRowError if no dimensions are known.
    """
    plain = re.sub(r"\([^)]*\)|^(run|pretrain|finetune)_", "", name)
    blocks = re.search(r"\b(\d+)L\b", plain)
    dotted = re.sub(r"[^a-z0-9.]", "", re.sub(r"\b\d+L\b", "", plain).lower())
    keys = (dotted, dotted.replace(".", ""))
    matching = (
        model
        for fits in (re.fullmatch, re.match)
        for key in keys
        for known, model in _PUBLISHED.items()
        if fits(known, key)
    )
    found = next(matching, None)
    if found is None:
        raise UnusableRowError(f"the dimensions of {name} are not known")
    return of_depth(found, int(blocks[1])) if blocks else found


def of_depth(model: TransformerConfig, blocks: int) -> TransformerConfig:
    """`model` with so many blocks, which have windows in turn as its own do."""
    kinds = tuple(model.kinds[n % len(model.kinds)] for n in range(blocks)) if model.kinds else ()
    return replace(model, num_layers=blocks, kinds=kinds, dense_layers=min(model.dense_layers, blocks))
