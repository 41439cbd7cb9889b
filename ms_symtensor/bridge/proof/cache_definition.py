"""ReshapeAndCache and PagedAttention in terms of plain operators. Imports mindspore at once: see `definitions`."""

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Zero
from mindspore.nn.utils import no_init_parameters

_HIDDEN = -1e30  # added to a score: its exponential is 0 in float32


class CacheUpdate(nn.Cell):
    """Writes keys and values [batch, seq, width] to their slots of two caches [blocks, tokens, heads, head_dim].

    It returns the keys. The caches are its parameters, in the order of their names.
    """

    def __init__(self, shape):
        super().__init__()
        self.tokens, self.shape = shape[1], shape[2:]
        with no_init_parameters():
            empty = Tensor(shape=shape, dtype=mindspore.float32, init=Zero())
            self.written0, self.written1 = Parameter(empty, name="written0"), Parameter(empty, name="written1")
        self.write_key, self.write_value = ops.ScatterNdUpdate(), ops.ScatterNdUpdate()

    def construct(self, key, value, slots):
        place = ops.stack((slots // self.tokens, slots % self.tokens), 1)
        rows = (slots.shape[0], *self.shape)
        written = self.write_key(self.written0, place, ops.reshape(key, rows))
        key = ops.depend(key, written)
        return ops.depend(key, self.write_value(self.written1, place, ops.reshape(value, rows)))


class PagedAttention(nn.Cell):
    """Attention of one token of every request [batch, 1, heads * head_dim] over the first `lengths` of its keys in the caches.

    `lengths` may have further requests behind those of the queries. With a `value_size` values are the first elements of keys.
    """

    def __init__(self, heads, kv_heads, scale, value_size):
        super().__init__()
        self.heads, self.kv_heads, self.scale, self.value_size = heads, kv_heads, scale, value_size

    def construct(self, query, key_cache, value_cache, tables, lengths):
        batch, head_dim, keys = query.shape[0], key_cache.shape[3], tables.shape[1] * key_cache.shape[1]
        q = ops.reshape(query, (batch, self.heads, 1, head_dim))
        k, v = self.gathered(key_cache, tables, keys), self.gathered(value_cache, tables, keys)
        score = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.scale
        seen = ops.reshape(ops.arange(keys), (1, keys)) < ops.reshape(lengths[:batch], (batch, 1))
        score = score + ops.reshape((1 - ops.cast(seen, mindspore.float32)) * _HIDDEN, (batch, 1, 1, keys))
        weight = ops.exp(score - ops.amax(score, -1, True))
        out = ops.matmul(weight / ops.sum(weight, -1, True), v[..., : self.value_size] if self.value_size else v)
        return ops.reshape(out, (batch, 1, self.heads * out.shape[3]))

    def gathered(self, cache, tables, keys):
        """The keys or values of every request: [batch, heads, keys, head_dim]."""
        x = ops.reshape(ops.gather(cache, tables, 0), (tables.shape[0], keys, self.kv_heads, cache.shape[3]))
        return ops.repeat_interleave(ops.transpose(x, (0, 2, 1, 3)), self.heads // self.kv_heads, 1)
