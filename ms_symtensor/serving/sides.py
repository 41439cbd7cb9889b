"""How the weights of a deployment lie on its devices: what a training plan is resharded to.

Names and shapes are those of the zoo's network. Weights move in 16 bit; engines that serve 8 or 4 bits make them of these.
"""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.described import config_of
from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import parsed_json
from ms_symtensor.reshard.slices import Held, Side, Slices
from ms_symtensor.serving.folder import FILE
from ms_symtensor.serving.strategy import Strategy
from ms_symtensor.strategy.reading import Field
from ms_symtensor.tensor.layout import Layout

_REMEDY = "serve again"
_OF_HEADS = re.compile(
    r"attention\.(query|query_rotary|key|value|gate|mixed|rates|step|core\.decay)\.(weight|bias|log_decay)$"
)
_ROWS, _COLUMNS, _TABLE = r"\.(gate|up)\.(weight|bias)$", r"\.down\.weight$", r"(word_embedding\.table|output_table)$"


@dataclass(frozen=True)
class Served:
    """One kind of instance of a folder that `serve` wrote, `count` times; on `cluster`."""

    config: TransformerConfig
    strategy: Strategy
    count: int
    cluster: str

    @property
    def model(self) -> str:
        return self.config.name

    @property
    def data_parallel(self) -> int:
        return self.strategy.dp

    @property
    def model_parallel(self) -> int:
        return self.strategy.tp

    @property
    def expert_parallel(self) -> int:
        return self.strategy.ep


def read(folder: Path, phase: str = "decode") -> Served:
    """The instances of `phase` in `folder`, or those that run both. InputError, with file and key, if it holds no such."""
    file = folder / FILE
    root = Field(parsed_json(file.read_bytes(), file, "the deployment", _REMEDY), str(file), remedy=_REMEDY)
    for one in root["instances"].items_of_list():
        if one["phase"].text() in (phase, "mixed"):
            values = {name: value.integer(1) for name, value in one["strategy"].items()}
            config = config_of(root["model"].text(), root["dimensions"].text())
            return Served(config, Strategy(**values), one["count"].integer(1), root["cluster"].text())
    raise InputError(f"{file} has no instances for {phase}: {_REMEDY}")


def side_of_instances(served: Served, dtype: str, replicas: int) -> Side:
    """The weights of `replicas` instances in `dtype`.

    Errors: InputError for experts that do not lie evenly on devices.
    """
    config, one = replace(served.config, second_token_weight=0.0), served.strategy
    per_stage = math.ceil(config.num_layers / one.pp)
    tensors = []
    for parameter in build_graph(config).parameters:
        layer = re.match(r"layers\.(\d+)\.", parameter.name)
        stages = (int(layer[1]) // per_stage,) if layer else _outside(parameter.name, config, one.pp)
        shape = parameter.type.shape
        slices = Slices(_layout(config, one, parameter.name, shape))
        stored = dtype if "float" in parameter.type.dtype else parameter.type.dtype
        tensors.append(Held(parameter.name, shape, stored, tuple((stage, slices) for stage in stages), stages))
    return Side(tuple(tensors), one.pp, one.stage_devices, replicas)


def _outside(name: str, config: TransformerConfig, stages: int) -> tuple[int, ...]:
    """The stages of what is in no block: embeddings are read on the first, the head on the last."""
    if not name.endswith("embedding.table"):
        return (stages - 1,)
    is_head = config.tied_embeddings and name.startswith("word_embedding")
    return tuple(dict.fromkeys((0, stages - 1))) if is_head else (0,)


def _layout(config: TransformerConfig, one: Strategy, name: str, shape: tuple[int, ...]) -> Layout:
    if ".experts." in name:
        return _expert_layout(one, name, shape)
    cut, dim = 1, 0
    if _OF_HEADS.search(name):
        own = re.search(r"attention\.(key|value)\.", name) and config.latent_attention is None
        cut = min(one.tp, config.n_kv_heads) if own else one.tp
    elif name.endswith(("attention.output.weight", "convolution.weight")):
        cut, dim = one.tp, 1
    elif re.search(_TABLE, name):
        cut = one.tp if shape[0] % one.tp == 0 else 1
    elif ".shared." not in name and re.search(_ROWS, name):
        cut = one.ffn_tp
    elif ".shared." not in name and re.search(_COLUMNS, name):
        cut, dim = one.ffn_tp, 1
    # heads that do not suffice for tp are next to each other on as many devices
    within = one.ffn_tp if cut == one.ffn_tp else one.tp
    matrix = (one.stage_devices // within, cut, within // cut)
    return Layout(matrix, tuple(1 if d == dim and cut > 1 else -1 for d in range(len(shape))), shape)


def _expert_layout(one: Strategy, name: str, shape: tuple[int, ...]) -> Layout:
    if one.ep > 1:
        if shape[0] % one.ep:
            raise InputError(
                f"{shape[0]} experts do not lie evenly on {one.ep} devices: pin another number (--fix ep=…)"
            )
        return Layout((one.stage_devices // one.ep, one.ep), (0, -1, -1), shape)
    dim = 1 if name.endswith("down") else 2
    return Layout((one.stage_devices,), tuple(0 if d == dim else -1 for d in range(3)), shape)
