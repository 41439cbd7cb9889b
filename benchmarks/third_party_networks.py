"""Networks of mindcv, mindone and MindSpore's own layers at reduced sizes, as factories: `file.py:name` returns (cell, inputs).

Functions of mint without a distributed form give way to those of ops that compute the same, as docs/limits/networks.md says.
`file.py:mindcv_NAME` is NAME of mindcv as it comes, for 16 classes.
"""

import importlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor, mint, nn, ops

mint.addmm, mint.baddbmm = ops.addmm, ops.baddbmm
BATCH, TOKENS, WORDS = 8, 16, 64


class Embedding(mint.nn.Embedding):
    def construct(self, input: Tensor) -> Tensor:
        return ops.gather(self.weight, input, 0)


class LayerNorm(mint.nn.LayerNorm):
    def construct(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


def layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    begin = input.ndim - len(normalized_shape)
    gamma = ops.ones(normalized_shape, input.dtype) if weight is None else weight
    beta = ops.zeros(normalized_shape, input.dtype) if bias is None else bias
    return ops.LayerNorm(begin, begin, eps)(input, gamma, beta)[0]


mint.nn.Embedding, mint.nn.LayerNorm, mint.nn.functional.layer_norm = Embedding, LayerNorm, layer_norm


def numbers(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def words(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).integers(0, WORDS, shape).astype(np.int32))


class Classified(nn.Cell):
    """Images to classes."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__()
        self.network = network

    def construct(self, x: Tensor, label: Tensor) -> Tensor:
        return ops.cross_entropy(self.network(x), label)


def image_network(module: str, name: str, size: int = 64, **options: Any) -> Any:
    made = getattr(importlib.import_module(f"mindcv.models.{module}"), name)(num_classes=16, **options)
    return Classified(made), (numbers(BATCH, 3, size, size), words(BATCH) % 16)


_AS_PUBLISHED = "mindcv_"
_SIZES = {
    "cmt_tiny": 160, "crossvit_9": 240, "swinv2_tiny_window8": 256, "mobilevit_xx_small": 256, "edgenext_xx_small": 256,
    "halonet_50t": 256, "inception_v4": 299, "xception": 299,
}  # fmt: skip
"""Of images, where that is not 224."""


def __getattr__(name: str) -> Callable[[], Any]:
    if not name.startswith(_AS_PUBLISHED):
        raise AttributeError(name)
    published = name[len(_AS_PUBLISHED) :]

    def factory() -> Any:
        size = _SIZES.get(published, 224)
        made = importlib.import_module("mindcv").create_model(published, num_classes=16)
        return Classified(made), (numbers(BATCH, 3, size, size), words(BATCH) % 16)

    return factory


def resnet50() -> Any:
    return image_network("resnet", "resnet50")


def efficientnet() -> Any:
    made, inputs = image_network("efficientnet", "efficientnet_b0", drop_path_prob=0.0)
    made.network.dropout = nn.Identity()
    return made, inputs


def convnext() -> Any:
    return image_network("convnext", "convnext_tiny", drop_path_rate=0.0)


def swin() -> Any:
    """swin_tiny of mindcv with two layers in each stage, without dropped paths."""
    from mindcv.models.swintransformer import SwinTransformer

    made = SwinTransformer(num_classes=16, depths=[2, 2, 2, 2], num_heads=[3, 6, 12, 24], drop_path_rate=0.0)
    return Classified(made), (numbers(BATCH, 3, 224, 224), words(BATCH) % 16)


def alexnet() -> Any:
    """As in the paper, without dropout; mindcv has none."""
    layers = [
        nn.Conv2d(3, 64, 11, 4, "pad", 2, has_bias=True), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2, pad_mode="pad", has_bias=True), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Dense(192 * 7 * 7, 256), nn.ReLU(), nn.Dense(256, 16),
    ]  # fmt: skip
    return Classified(nn.SequentialCell(layers)), (numbers(BATCH, 3, 127, 127), words(BATCH) % 16)


def inception() -> Any:
    from mindcv.models.inceptionv3 import InceptionV3

    made = InceptionV3(num_classes=16, aux_logits=False, drop_rate=0.0)
    return Classified(made), (numbers(BATCH, 3, 139, 139), words(BATCH) % 16)


class LanguageModel(nn.Cell):
    """Two layers of LSTM cells over `TOKENS` steps, as nn.LSTM has no form that can be cut on Ascend."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, width), nn.Dense(width, WORDS)
        self.steps = nn.CellList([nn.LSTMCell(width, width) for _ in range(2)])

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.embedding(x)
        for cell in self.steps:
            state = ops.zeros_like(h[:, 0]), ops.zeros_like(h[:, 0])
            states = []
            for i in range(TOKENS):
                state = cell(h[:, i], state)
                states.append(state[0])
            h = ops.stack(states, 1)
        return ops.cross_entropy(self.head(h).reshape(-1, WORDS), y.reshape(-1))


def lstm() -> Any:
    return LanguageModel(), (words(BATCH, TOKENS), words(BATCH, TOKENS))


class Translator(nn.Cell):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.network = nn.Transformer(width, 4, 2, 2, 128, dropout=0.0, batch_first=True)

    def construct(self, source: Tensor, target: Tensor) -> Tensor:
        return (self.network(source, target) ** 2).mean()


def transformer() -> Any:
    return Translator(), (numbers(BATCH, TOKENS, 64), numbers(BATCH, TOKENS, 64))


class First(nn.Cell):
    """The mean square of the first thing that `network` gives for its arguments, which are named."""

    def __init__(self, network: nn.Cell, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def construct(self, *inputs: Tensor) -> Tensor:
        given = {}
        for i in range(len(self.names)):
            given[self.names[i]] = inputs[i]
        return (self.network(**given, return_dict=False)[0] ** 2).mean()


_SMALL = {
    "vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def rewritten(name: str, pattern: str, text: str) -> Any:
    """Mindone's module `models.NAME` with `text` for what `pattern` finds."""
    full = f"mindone.transformers.models.{name}"
    found = importlib.util.find_spec(full)
    assert found is not None and found.origin is not None
    source = Path(found.origin).read_text(encoding="utf-8")
    file = Path(tempfile.mkdtemp(prefix="rewritten_")) / f"{name.rpartition('.')[2]}.py"
    file.write_text(re.sub(pattern, text, source), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(full, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


def unfiltered(name: str) -> Any:
    """Mindone's module `models.NAME` with `(first,)` for `tuple(v for v in [first, …] if v is not None)`."""
    pattern = r"return tuple\(\s*v\s+for v in \[\s*(\w+),[\w\s,]*\]\s*if v is not None\s*\)"
    return rewritten(name, pattern, r"return (\1,)")


def bert() -> Any:
    from transformers import BertConfig

    sizes = BertConfig(**_SMALL, attn_implementation="eager")
    network = unfiltered("bert.modeling_bert").BertModel(sizes, add_pooling_layer=False)
    return First(network, ("input_ids",)), (words(BATCH, TOKENS),)


def chosen(condition: Tensor, one: Tensor, number: Any) -> Tensor:
    return ops.masked_fill(one, ops.logical_not(condition), number)


def gpt2() -> Any:
    ops.where = chosen  # GPT-2 has a number beside its mask
    from mindone.transformers import GPT2Model
    from transformers import GPT2Config

    sizes = GPT2Config(
        vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, n_positions=TOKENS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    return First(GPT2Model(sizes), ("input_ids",)), (words(BATCH, TOKENS),)


def t5() -> Any:
    from transformers import T5Config

    sizes = T5Config(
        vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0, use_cache=False
    )
    network = unfiltered("t5.modeling_t5").T5Model(sizes)
    return First(network, ("input_ids", "decoder_input_ids")), (words(BATCH, TOKENS), words(BATCH, TOKENS))


def clip() -> Any:
    from mindone.transformers import CLIPVisionModel
    from transformers import CLIPVisionConfig

    sizes = CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8,
        attn_implementation="eager",
    )  # fmt: skip
    return First(CLIPVisionModel(sizes), ("pixel_values",)), (numbers(BATCH, 3, 32, 32),)


def unet() -> Any:
    from mindone.diffusers import UNet2DModel

    network = UNet2DModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return First(network, ("sample", "timestep")), (numbers(BATCH, 4, 16, 16), words(BATCH))


def dit() -> Any:
    from mindone.diffusers import DiTTransformer2DModel

    network = DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2, sample_size=16, patch_size=2,
        num_embeds_ada_norm=16, norm_num_groups=8,
    )  # fmt: skip
    for _, cell in network.cells_and_names():
        if hasattr(cell, "dropout_prob"):
            cell.dropout_prob = 0  # of labels, at random
    inputs = numbers(BATCH, 4, 16, 16), words(BATCH), words(BATCH) % 16
    return First(network, ("hidden_states", "timestep", "class_labels")), inputs


def flux() -> Any:
    from mindone.diffusers import FluxTransformer2DModel

    network = FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=4,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    names = "hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "img_ids", "txt_ids"
    inputs = (
        numbers(BATCH, 16, 16), numbers(BATCH, 8, 32), numbers(BATCH, 32), numbers(BATCH), numbers(16, 3), numbers(8, 3)
    )  # fmt: skip
    return First(network, names), inputs


def video() -> Any:
    from mindone.diffusers import CogVideoXTransformer3DModel

    network = CogVideoXTransformer3DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=16, text_embed_dim=32,
        num_layers=2, sample_width=8, sample_height=8, sample_frames=9, max_text_seq_length=8,
    )  # fmt: skip
    inputs = numbers(BATCH, 3, 4, 8, 8), numbers(BATCH, 8, 32), words(BATCH)
    return First(network, ("hidden_states", "encoder_hidden_states", "timestep")), inputs


def sliced(x: Tensor, sizes: Any, dim: int = 0) -> Any:
    """Parts of `x` along its last dim; mint.split is a view."""
    assert dim == -1
    parts, begin = [], 0
    for size in sizes:
        parts.append(x[..., begin : begin + size])
        begin += size
    return tuple(parts)


def unsqueezed(x: Tensor, dim: int) -> Tensor:
    return x.unsqueeze(dim)


def mamba2() -> Any:
    mint.split, mint.unsqueeze, mint.tril = sliced, unsqueezed, ops.tril
    from transformers import Mamba2Config

    sizes = Mamba2Config(
        vocab_size=WORDS, hidden_size=64, state_size=16, num_hidden_layers=2, num_heads=8, head_dim=16, n_groups=1, chunk_size=8,
        use_cache=False,
    )  # fmt: skip
    module = rewritten("mamba2.modeling_mamba2", r"permute\(0, -2, -1, 1\)", "permute(0, 2, 3, 1)")
    return First(module.Mamba2Model(sizes), ("input_ids",)), (words(BATCH, TOKENS),)
