"""Which cluster file the words stand for that a table has for its devices."""

import re

from ms_symtensor.validation.dataset import UnusableRowError

CLUSTERS = (
    (r"cloudmatrix|superpod|384", "cloudmatrix384"),
    (r"910 ?c|910_93|\ba3\b", "atlas_800t_a3"),
    (r"910 ?a", "ascend910a"),
    (r"910 ?b1", "atlas_800t_a2_910b1"),
    (r"910 ?b3", "atlas_800t_a2_910b3"),
    (r"910 ?b4", "atlas_800t_a2_910b4"),
    # What MindSpeed and MindFormers publish without a generation is of the 910B.
    (r"910 ?b|\ba2\b|ascend|atlas|npu", "atlas_800t_a2"),
)
"""The first that occurs counts."""

GPUS = ((r"\ba100", "a100_80g"), (r"\bh100", "h100_80g"), (r"\bb200", "b200"))


def gpu_cluster(words: str) -> str:
    """The cluster file of the NVIDIA device that `words` name. UnusableRowError for others."""
    found = next((name for pattern, name in GPUS if re.search(pattern, words, re.IGNORECASE)), None)
    if found is None:
        raise UnusableRowError(f"no cluster file stands for {words!r}" if words else "the device is not given")
    return found


def named_cluster(words: str) -> str:
    """The cluster file of the chip that `words` name; "" where they say that they name none.

    UnusableRowError for a chip that no cluster file describes.
    """
    if re.match(r"unknown|not stated|ascend, not stated", words, re.IGNORECASE):
        return ""
    if re.search(r"\b950", words):
        raise UnusableRowError(f"no cluster file describes the {words}")
    return cluster_of(words)


def cluster_of(words: str) -> str:
    """The name of the cluster file. UnusableRowError for devices that are no Ascend."""
    found = next((name for pattern, name in CLUSTERS if re.search(pattern, words, re.IGNORECASE)), None)
    if found is None:
        raise UnusableRowError(f"no cluster file stands for {words!r}" if words else "the device is not given")
    return found
