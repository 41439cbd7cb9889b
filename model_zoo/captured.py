"""Networks of the zoo that MindSpore captures: their sizes as data, and where their cells are. MindSpore is not imported here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from model_zoo.config import COMPUTE_DTYPES, TransformerConfig
from ms_symtensor.errors import InputError

Built = tuple[Any, list[tuple[tuple[int, ...], str]]]
"""A forward cell with its loss, and shapes and element types of its inputs."""


@dataclass(frozen=True)
class CapturedNetwork:
    """`sizes`: what can be changed, and the published numbers; `batch_size` is the global one."""

    name: str
    sizes: Mapping[str, int]
    compute_dtype: str
    build: Callable[[Mapping[str, int], str], Built]


def _vision_language(sizes: Mapping[str, int], compute_dtype: str) -> Built:
    from model_zoo.vision_language import VisionLanguageConfig, build

    shared: dict[str, Any] = {
        "norm": "rms_norm", "norm_epsilon": 1e-6, "activation": "swiglu", "position": "rotary", "tied_embeddings": False,
        "batch_size": sizes["batch_size"], "compute_dtype": compute_dtype, "max_position_embeddings": 128000,
    }  # fmt: skip
    names = ("hidden_size", "num_layers", "num_heads", "n_kv_heads", "intermediate_size", "vocab_size")
    decoder: dict[str, Any] = {name: sizes[name] for name in names}
    language = TransformerConfig(
        name="qwen2_5_vl_7b", linear_bias=False, qkv_bias=True, rotary_base=1e6,
        seq_length=sizes["seq_length"], **decoder, **shared,
    )  # fmt: skip
    vision = TransformerConfig(
        name="qwen2_5_vl_7b", linear_bias=True, qkv_bias=True, causal=False, vocab_size=1, n_kv_heads=sizes["vision_heads"],
        hidden_size=sizes["vision_hidden_size"], num_layers=sizes["vision_layers"], num_heads=sizes["vision_heads"],
        intermediate_size=sizes["vision_intermediate_size"], **shared,
    )  # fmt: skip
    parts = ("prompt", "images", "side", "window", "full_step", "patch_values")
    return build(VisionLanguageConfig(language, vision, **{part: sizes[part] for part in parts}))


def _images(name: str, sizes: Mapping[str, int], compute_dtype: str) -> Built:
    from model_zoo import images

    batch, side = sizes["batch_size"], sizes["image_size"]
    cells, features = images.resnet50() if name == "resnet50" else images.inception_v3()
    cell = images.Classifier(cells, features, sizes["classes"])
    return cell, [((batch, 3, side, side), "float32"), ((batch,), "int32")]


def _sequences(name: str, sizes: Mapping[str, int], compute_dtype: str) -> Built:
    from model_zoo import sequences

    own: dict[str, Any] = {"num_heads": 1, "intermediate_size": 1, **sizes}
    config = TransformerConfig(
        name=name, n_kv_heads=sizes.get("num_heads", 1), max_position_embeddings=sizes["seq_length"], norm="layer_norm",
        norm_epsilon=1e-6, activation="gelu", position="learned", linear_bias=True, qkv_bias=True, tied_embeddings=False,
        compute_dtype=compute_dtype, **own,
    )  # fmt: skip
    shape = (config.batch_size, config.seq_length)
    ids = 1 if name == "lstm_lm" else 3
    cell = sequences.LstmModel(config) if name == "lstm_lm" else sequences.Translator(config)
    return cell, [*[(shape, "int32")] * (ids + 1), (shape, "float32")]


# fmt: off
_NETWORKS = (
    # https://huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct config.json; 16 tokens, four images of 448 x 448, 3,056 tokens
    CapturedNetwork("qwen2_5_vl_7b", {
        "batch_size": 16, "hidden_size": 3584, "num_layers": 28, "num_heads": 28, "n_kv_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064, "seq_length": 4096, "prompt": 16, "images": 4, "side": 32,
        "window": 8, "full_step": 8,
        "patch_values": 1176, "vision_hidden_size": 1280, "vision_layers": 32, "vision_heads": 16,
        "vision_intermediate_size": 3420,
    }, "bfloat16", _vision_language),
    # arXiv:1512.03385 and arXiv:1512.00567; ImageNet's classes
    CapturedNetwork(
        "resnet50", {"batch_size": 128, "image_size": 224, "classes": 1000}, "float32", partial(_images, "resnet50")
    ),
    CapturedNetwork(
        "inception_v3", {"batch_size": 128, "image_size": 299, "classes": 1000}, "float32", partial(_images, "inception_v3")
    ),
    # two layers of 2,048 over 20 steps, as arXiv:1602.02410 unrolls; a vocabulary of 2^15 * 3 for its 793,471 words
    CapturedNetwork("lstm_lm", {
        "batch_size": 64, "hidden_size": 2048, "num_layers": 2, "vocab_size": 98304,
        "seq_length": 20,
    }, "float32", partial(_sequences, "lstm_lm")),
    # arXiv:1706.03762, table 3, "big", with GELU and learned positions; 256 tokens of either language
    CapturedNetwork("transformer_wmt", {
        "batch_size": 64, "hidden_size": 1024, "num_layers": 6, "num_heads": 16, "intermediate_size": 4096,
        "vocab_size": 37000, "seq_length": 256,
    }, "bfloat16", partial(_sequences, "transformer_wmt")),
)
# fmt: on
CAPTURED: Mapping[str, CapturedNetwork] = MappingProxyType({network.name: network for network in _NETWORKS})


def changed_sizes(name: str, options: Mapping[str, Any]) -> dict[str, str]:
    """What differs from the published network, as texts that a plan's source keeps.

    Errors: InputError for a size that the network has not, for one below 1, and for an unknown element type.
    """
    network = CAPTURED[name]
    found: dict[str, str] = {}
    for key, value in options.items():
        if key == "compute_dtype":
            if network.compute_dtype == "float32" != value or value not in COMPUTE_DTYPES:
                known = "float32" if network.compute_dtype == "float32" else ", ".join(COMPUTE_DTYPES)
                raise InputError(f"{name} has no form in {value}; known: {known}")
        elif key not in network.sizes:
            raise InputError(f"{name} has no {key}; its sizes: {', '.join(network.sizes)}")
        elif not str(value).isdigit() or int(value) < 1:
            raise InputError(f"{name}: {key} is {value}: give a whole number above 0")
        found[key] = str(value)
    return found


def build(source: Mapping[str, str]) -> tuple[Any, tuple[Any, ...]]:
    """The network that a plan's `source` names, without weights, and its inputs without values."""
    import mindspore as ms
    from mindspore.common.initializer import Zero
    from mindspore.nn.utils import no_init_parameters

    network = CAPTURED[source["network"]]
    sizes = {key: int(source.get(key, value)) for key, value in network.sizes.items()}
    with no_init_parameters():
        cell, shapes = network.build(sizes, source.get("compute_dtype", network.compute_dtype))
    cell.set_train()
    return cell, tuple(ms.Tensor(shape=shape, dtype=getattr(ms, dtype), init=Zero()) for shape, dtype in shapes)
