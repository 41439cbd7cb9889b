"""What several tables share: devices and batches must agree with their factors."""

from math import prod

from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.table import Row


def devices_must_agree(row: Row, *further: str) -> int:
    """Number of devices: the product of dp, tp, pp and the columns `further`, which may be empty."""
    factors = ("dp", "tp", "pp")
    devices = row.count("n_devices")
    product = prod(row.count(f) for f in factors) * prod(row.optional_count(f) or 1 for f in further)
    if devices != product:
        raise UnusableRowError(f"{' x '.join((*factors, *further))} is not n_devices")
    return devices


def ranks_of_an_expert(row: Row) -> int:
    """expert_model_parallel of `row`, where nothing says it: see `tensor_ranks_of_an_expert`."""
    copies = row.count("dp") * (row.optional_count("cp") or 1)
    return tensor_ranks_of_an_expert(row.count("tp"), copies, row.optional_count("ep") or 1)


def tensor_ranks_of_an_expert(tensor_ranks: int, copies: int, expert_parallel: int) -> int:
    """All of them, as Megatron cuts experts, unless different experts lie on more ranks than there are copies of the data."""
    return 1 if copies % expert_parallel else tensor_ranks


def must_be_given(row: Row, *columns: str) -> None:
    """UnusableRowError if one of `columns` is empty, in tables whose sources leave things out."""
    for column in columns:
        if not row.text(column):
            raise UnusableRowError(f"{column} is not given")


def micro_batches(row: Row, samples: int, column: str = "global_batch") -> int:
    """Micro-batches of a step, of `samples` each on all devices together."""
    number, rest = divmod(row.count(column), samples)
    if rest or not number:
        raise UnusableRowError(f"{column} is no multiple of dp x micro-batch")
    return number
