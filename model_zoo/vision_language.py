"""Qwen2.5-VL: a vision tower whose features stand before the text of a decoder; the decoder is that of `network`.

Structure: transformers, modeling_qwen2_5_vl.py. A sample is a prompt, images that are square and of one size, and
text. Patches come as transformers' processor orders them: the four that are merged in a row, window by window.
"""

from dataclasses import dataclass, replace

import numpy as np
from mindspore import Tensor, nn, ops

from model_zoo.block import Constants, TransformerBlock, constants
from model_zoo.config import BlockKind, TransformerConfig
from model_zoo.layers import GatedFeedForward, Linear, Norm, RotaryEmbedding, core_attention, dtype_of, tables_of
from model_zoo.network import Transformer
from ms_symtensor.errors import InputError

MERGE = 2
"""Rows and columns of patches that are one token of the text."""
_TIME, _ROW = 16 / 64, 24 / 64
"""Shares of a head's frequencies that turn by time and by row; the others turn by column (mrope_section)."""


@dataclass(frozen=True)
class VisionLanguageConfig:
    """`vision` and `language`, whose `seq_length` counts the tokens of `prompt`, `images` and text together.

    An image has `side` x `side` patches of `patch_values` numbers (two frames of 3 x 14 x 14); its blocks attend within windows
    of `window` x `window` patches, but each `full_step`th.
    """

    language: TransformerConfig
    vision: TransformerConfig
    prompt: int
    images: int
    side: int
    window: int
    full_step: int
    patch_values: int

    def __post_init__(self) -> None:
        if self.side % self.window or self.window % MERGE:
            raise InputError(
                f"an image of {self.side} x {self.side} patches has no whole windows of {self.window} x {self.window}:"
                f" give a multiple of {self.window}"
            )
        if self.text < 1:
            raise InputError(
                f"prompt and {self.images} images are {self.prompt + self.image_tokens} tokens, and seq_length is"
                f" {self.language.seq_length}: leave room for text"
            )

    @property
    def image_tokens(self) -> int:
        """Tokens of the text that a sample's images are."""
        return self.images * (self.side // MERGE) ** 2

    @property
    def text(self) -> int:
        """Tokens behind the images."""
        return self.language.seq_length - self.prompt - self.image_tokens

    @property
    def patches(self) -> int:
        """Of a sample."""
        return self.images * self.side**2


def _window_order(side: int, window: int) -> np.ndarray:
    """Rows and columns of an image's cells, window by window: int [side * side, 2]."""
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1)
    parts = grid.reshape(side // window, window, side // window, window, 2)
    ordered: np.ndarray = parts.transpose(0, 2, 1, 3, 4).reshape(-1, 2)
    return ordered


def _patch_places(config: VisionLanguageConfig) -> np.ndarray:
    """Rows and columns of an image's patches as they come: int [side * side, 2]."""
    merged = _window_order(config.side // MERGE, config.window // MERGE)
    inside = np.stack(np.meshgrid(np.arange(MERGE), np.arange(MERGE), indexing="ij"), -1).reshape(1, -1, 2)
    places: np.ndarray = (merged[:, None] * MERGE + inside).reshape(-1, 2)
    return places


def _patch_tables(config: VisionLanguageConfig) -> tuple[Tensor, Tensor]:
    """Angles of patches, half of the frequencies by row, half by column."""
    half = config.vision.head_dim // 2
    frequency = config.vision.rotary_base ** -(np.arange(0, half, 2) / half)
    rows, columns = np.moveaxis(_patch_places(config), -1, 0)
    return tables_of(config.vision, np.concatenate([np.outer(rows, frequency), np.outer(columns, frequency)], -1))


def _token_tables(config: VisionLanguageConfig) -> tuple[Tensor, Tensor]:
    """Angles of a sample's tokens by time, row and column: the prompt, images one after the other, the text."""
    side, start = config.side // MERGE, config.prompt
    places = [np.repeat(np.arange(start)[:, None], 3, -1)]
    row, column = np.divmod(np.arange(side * side), side)
    for _ in range(config.images):
        places.append(np.stack([np.full(side * side, start), start + row, start + column], -1))
        start += side
    text = start + np.arange(config.text)
    places.append(np.repeat(text[:, None], 3, -1))
    half = config.language.head_dim // 2
    time, rows = int(half * _TIME), int(half * _ROW)
    axis = np.repeat([0, 1, 2], [time, rows, half - time - rows])
    frequency = config.language.rotary_base ** -(np.arange(half) / half)
    return tables_of(config.language, np.concatenate(places)[:, axis] * frequency)


class VisionAttention(nn.Cell):
    """Attention of [patches, hidden] within groups of `group` patches in a row: a window, or an image of `length`."""

    def __init__(self, config: TransformerConfig, tables: tuple[Tensor, Tensor], length: int, group: int) -> None:
        super().__init__()
        self.length, self.group, self.heads, self.head_dim = length, group, config.num_heads, config.head_dim
        self.query, self.key, self.value, self.output = (
            Linear(config, config.hidden_size, config.hidden_size, has_bias=True) for _ in range(4)
        )
        self.split_query, self.split_key, self.split_value = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.rotary_query, self.rotary_key = RotaryEmbedding(config, tables), RotaryEmbedding(config, tables)
        self.is_windowed = group < length
        if self.is_windowed:
            self.window_query, self.window_key, self.window_value = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.core, self.merge_heads = core_attention(config, None), ops.Reshape()

    def construct(self, x: Tensor) -> Tensor:
        patches = x.shape[0]
        images = (patches // self.length, self.length, self.heads, self.head_dim)
        query = self.rotary_query(self.split_query(self.query(x), images))
        key = self.rotary_key(self.split_key(self.key(x), images))
        value = self.value(x)
        if self.is_windowed:
            windows = (patches // self.group, self.group, self.heads, self.head_dim)
            query, key = self.window_query(query, windows), self.window_key(key, windows)
            value = self.window_value(value, windows)
        else:
            value = self.split_value(value, images)
        return self.output(self.merge_heads(self.core(query, key, value), (patches, self.heads * self.head_dim)))


class VisionBlock(nn.Cell):
    """One layer of the tower: norms stand before attention and feed-forward."""

    def __init__(self, config: TransformerConfig, tables: tuple[Tensor, Tensor], length: int, group: int) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = (Norm(config, config.hidden_size) for _ in range(2))
        self.attention = VisionAttention(config, tables, length, group)
        self.feed_forward = GatedFeedForward(config, config.intermediate_size)
        self.add_attention, self.add_feed_forward = ops.Add(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        x = self.add_attention(x, self.attention(self.attention_norm(x)))
        return self.add_feed_forward(x, self.feed_forward(self.feed_forward_norm(x)))


class PatchMerger(nn.Cell):
    """Four patches in a row [4 patches, hidden] -> one token [1, width of the text]."""

    def __init__(self, config: TransformerConfig, out_size: int) -> None:
        super().__init__()
        self.width = MERGE**2 * config.hidden_size
        self.norm, self.merge, self.gelu = Norm(config, config.hidden_size), ops.Reshape(), ops.GeLU()
        self.up = Linear(config, self.width, self.width, has_bias=True)
        self.down = Linear(config, self.width, out_size, has_bias=True)

    def construct(self, x: Tensor) -> Tensor:
        x = self.merge(self.norm(x), (x.shape[0] // MERGE**2, self.width))
        return self.down(self.gelu(self.up(x)))


class VisionTower(nn.Cell):
    """Patches [batch, patches, values] -> tokens [batch, tokens of its images, width of the text], row by row."""

    def __init__(self, config: VisionLanguageConfig) -> None:
        super().__init__()
        vision, length = config.vision, config.side**2
        tables = _patch_tables(config)
        self.values, self.compute_dtype = config.patch_values, dtype_of(vision.compute_dtype)
        self.tokens, self.width = config.image_tokens, config.language.hidden_size
        self.flatten, self.cast, self.unflatten = ops.Reshape(), ops.Cast(), ops.Reshape()
        self.embedding = Linear(vision, config.patch_values, vision.hidden_size, has_bias=False)
        groups = [length if (n + 1) % config.full_step == 0 else config.window**2 for n in range(vision.num_layers)]
        self.blocks = nn.CellList([VisionBlock(vision, tables, length, group) for group in groups])
        self.merger = PatchMerger(vision, self.width)
        rows, columns = _window_order(config.side // MERGE, config.window // MERGE).T
        order = np.argsort(rows * (config.side // MERGE) + columns)
        starts = len(order) * np.arange(config.images)[:, None]
        self.order = Tensor((starts + order).reshape(-1).astype(np.int32))
        self.reorder = ops.Gather()

    def construct(self, pixels: Tensor) -> Tensor:
        batch, patches, _ = pixels.shape
        x = self.cast(self.flatten(pixels, (batch * patches, self.values)), self.compute_dtype)
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        x = self.unflatten(self.merger(x), (batch, self.tokens, self.width))
        return self.reorder(x, self.order, 1)


class FirstBlock(TransformerBlock):
    """The first block takes x [batch, seq, hidden]: a pipeline can be cut behind what joins its parts, not behind a Reshape."""

    def __init__(self, config: TransformerConfig, shared: Constants, kind: BlockKind) -> None:
        super().__init__(config, shared, kind)
        self.width, self.flatten = config.hidden_size, ops.Reshape()

    def construct(self, x: Tensor, hidden: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        return super().construct(self.flatten(x, (x.shape[0] * x.shape[1], self.width)), hidden)


class VisionLanguage(Transformer):
    """The decoder over prompt, images and text; `loss_mask` [batch, seq] is 0 where an image stands."""

    def __init__(self, config: VisionLanguageConfig) -> None:
        language = config.language
        shared = replace(constants(language), rotary={0.0: _token_tables(config)})
        super().__init__(language, shared)
        self.layers[0] = FirstBlock(language, shared, language.kind(0))
        self.vision, self.join = VisionTower(config), ops.Concat(1)
        self.gather_prompt, self.cast_prompt = ops.Gather(), ops.Cast()

    def construct(
        self, prompt_ids: Tensor, pixels: Tensor, text_ids: Tensor, labels: Tensor, loss_mask: Tensor
    ) -> Tensor:
        prompt = self.cast_prompt(self.gather_prompt(self.word_embedding.table, prompt_ids, 0), self.compute_dtype)
        text = self.cast_embedding(self.word_embedding(text_ids), self.compute_dtype)
        x = self.join((prompt, self.vision(pixels), text))
        return self.loss_of(self.norm(self.run_layers(x)), labels, loss_mask)


def build(config: VisionLanguageConfig) -> tuple[nn.Cell, list[tuple[tuple[int, ...], str]]]:
    """The network with its loss, and shapes and element types of its inputs."""
    batch, seq = config.language.batch_size, config.language.seq_length
    shapes = [
        ((batch, config.prompt), "int32"),
        ((batch, config.patches, config.patch_values), "float32"),
        ((batch, config.text), "int32"),
        ((batch, seq), "int32"),
        ((batch, seq), "float32"),
    ]
    return VisionLanguage(config), shapes
