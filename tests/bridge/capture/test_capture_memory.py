"""What a capture takes on the host."""

import subprocess
import sys
from pathlib import Path

MEASURE = """
import resource, sys
sys.path.insert(0, {folder!r})
from logits import network
from ms_symtensor.bridge.capture.capture import capture
cell, inputs = network({tokens})
capture(cell, *inputs)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
NETWORK = """
import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Zero


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(32000, 8), nn.Dense(8, 32000)

    def construct(self, x, y):
        return ops.cross_entropy(self.head(self.embed(x)).reshape(-1, 32000), y.reshape(-1))


def network(tokens):
    x = Tensor(shape=(tokens // 512, 512), dtype=ms.int32, init=Zero())
    return Net(), (x, x)
"""


def test_its_memory_does_not_grow_with_tokens_times_vocabulary(tmp_path):
    """8,192 tokens of 32,000 words more are 1 GB of logits."""
    (tmp_path / "logits.py").write_text(NETWORK)
    few, many = (peak_KiB(tmp_path, tokens) for tokens in (512, 8704))
    assert many - few < 100 * 1024


def peak_KiB(folder: Path, tokens: int) -> int:
    script = MEASURE.format(folder=str(folder), tokens=tokens)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1])
