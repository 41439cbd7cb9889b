"""Kinds of operators and of collectives, by which a plan's names and those of kernels are brought under the same words."""

OPTIMIZER, PRODUCTS, ATTENTION, NORMALIZATION, OTHER = "optimizer", "products", "attention", "normalization", "other"

_OPERATORS = (
    (OPTIMIZER, ("adam", "lamb", "momentum", "applysgd")),
    (ATTENTION, ("flashattention", "attentionscore")),
    (PRODUCTS, ("matmul", "dense", "linear")),
    (NORMALIZATION, ("norm",)),
)
"""A kind by what the type of one of its operators or kernels holds, in small letters: `MatMulV3`, `RmsNormGrad`."""

_COLLECTIVES = (
    ("AlltoAll", "alltoall"), ("ReduceScatter", "reducescatter"), ("AllReduce", "allreduce"), ("AllGather", "allgather"),
    ("Broadcast", "broadcast"), ("Send and Receive", "sendrecv"), ("Send", "send"), ("Receive", "receive"),
)  # fmt: skip
"""`hcom_allReduce__721_0_1@15244899533746605158`, `Default/…/AllReduce-op3`."""


def kind_of_operator(type_: str) -> str:
    """The kind of an operator or a kernel of this type."""
    name = type_.lower().replace("_", "")
    return next((kind for kind, words in _OPERATORS if any(word in name for word in words)), OTHER)


def kind_of_collective(name: str) -> str | None:
    """The kind of the collective that is called so, None for what is none."""
    name = name.lower().replace("_", "")
    return next((kind for kind, word in _COLLECTIVES if word in name), None)
