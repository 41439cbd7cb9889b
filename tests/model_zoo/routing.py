"""What TopKRouter computes, for a device without its kernel (CPU)."""

from mindspore import Tensor, nn, ops


class RouterDefinition(nn.Cell):
    """experts [groups, tokens, k] -> tokens of every place [groups, experts, capacity], from 1, 0 where empty; and the place of
    every choice [groups, tokens, k] among capacity + 1 of each expert, 0 within its expert where it is dropped. Earlier tokens
    come first.
    """

    def construct(self, experts: Tensor, capacity: int, number: int, _: int) -> tuple[Tensor, Tensor]:
        groups, tokens, k = experts.shape
        flat = experts.reshape(groups, tokens * k)
        mine = (flat.expand_dims(-1) == ops.arange(number)).astype(flat.dtype)
        place = (ops.cumsum(mine, 1) * mine).sum(-1)
        place = place * (place <= capacity).astype(place.dtype)
        token = ops.arange(tokens * k) // k + 1
        at = mine.expand_dims(-1) * (place.expand_dims(-1) == ops.arange(1, capacity + 1)).expand_dims(2).astype(
            flat.dtype
        )
        tokens_of = (at * token.reshape(1, -1, 1, 1)).sum(1)
        return tokens_of.astype(flat.dtype), (flat * (capacity + 1) + place).reshape(experts.shape).astype(flat.dtype)
