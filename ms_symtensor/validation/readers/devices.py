"""Which cluster file the words stand for that a table has for its devices."""

import re

from ms_symtensor.validation.dataset import UnusableRowError

ASCEND = {
    r"cloudmatrix|superpod|384": "cloudmatrix384",
    r"910 ?c|910_93|\ba3\b": "atlas_800t_a3",
    r"910 ?a": "ascend910a",
    r"910 ?b1": "atlas_800t_a2_910b1",
    r"910 ?b3": "atlas_800t_a2_910b3",
    r"910 ?b4": "atlas_800t_a2_910b4",
    # What MindSpeed and MindFormers publish without a generation is of the 910B.
    r"910 ?b|\ba2\b|ascend|atlas|npu": "atlas_800t_a2",
}
GPUS = {r"\ba100": "a100_80g", r"\bh100": "h100_80g", r"\bb200": "b200"}
"""Of either the first that occurs counts."""


def cluster_of(words: str, among: dict[str, str] = ASCEND) -> str:
    """The cluster file of the device that `words` name. UnusableRowError for devices that are none of these."""
    found = next((name for pattern, name in among.items() if re.search(pattern, words, re.IGNORECASE)), None)
    if found is None:
        raise UnusableRowError(f"no cluster file stands for {words!r}" if words else "the device is not given")
    return found


def gpu_cluster(words: str) -> str:
    """As `cluster_of`, of NVIDIA's devices."""
    return cluster_of(words, GPUS)


def named_cluster(words: str) -> str:
    """As `cluster_of`; "" where `words` say that they name no chip, and UnusableRowError for a chip without a cluster file."""
    if re.match(r"unknown|not stated|ascend, not stated", words, re.IGNORECASE):
        return ""
    if re.search(r"\b950", words):
        raise UnusableRowError(f"no cluster file describes the {words}")
    return cluster_of(words)
