"""A cell around one Morph. It imports mindspore at once: reached through `morph.body_of` only."""

from mindspore import nn


class MorphCell(nn.Cell):
    """What one Morph does, by itself."""

    def __init__(self, morph):
        super().__init__(auto_prefix=False)
        self.morph = morph

    def construct(self, *inputs):
        return self.morph(*inputs)
