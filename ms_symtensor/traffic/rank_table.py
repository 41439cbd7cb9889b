"""The rank table that `msrun --rank_table_file` takes: which rank runs on which device of which server.

Format 1.0 (mindspore.cn, tutorials, rank table startup). msrun's cluster reads `pod_ip` of a server, beside `device_id` and
`rank_id`, to give its ranks (MindSpore 2.10, libmindspore_cluster, ReassignNodeRankFromRanktablefile).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import read_text

EXAMPLE_SERVERS, EXAMPLE_DEVICES = IPv4Address("198.18.0.1"), IPv4Address("198.19.0.1")
"""First addresses of examples: 198.18.0.0/15 is for tests and stands in no network (RFC 2544)."""


@dataclass(frozen=True)
class Server:
    """A server's address, and those of its devices' network cards in their order."""

    address: str
    devices: tuple[str, ...]


def example_servers(number: int, devices: int) -> tuple[Server, ...]:
    """Servers whose addresses are examples."""
    return tuple(
        Server(
            str(EXAMPLE_SERVERS + server),
            tuple(str(EXAMPLE_DEVICES + server * devices + device) for device in range(devices)),
        )
        for server in range(number)
    )


def servers_of(file: Path, number: int, devices: int) -> tuple[Server, ...]:
    """The servers of a file, leaf by leaf: a line for each, its address and those of its devices.

    Raises:
        InputError: for another number of servers or devices, and for what is no address.
    """
    lines = [line.split("#")[0].split() for line in read_text(file, "a list of servers").splitlines()]
    found = [words for words in lines if words]
    if len(found) != number:
        raise InputError(f"{file} has {len(found)} servers, and the plan runs on {number}: give a line for each")
    for words in found:
        if len(words) != devices + 1:
            raise InputError(
                f"{file}: {words[0]} has {len(words) - 1} devices, not {devices}: give its address and those of its devices"
            )
        for word in words:
            try:
                ip_address(word)
            except ValueError:
                raise InputError(f"{file}: {word!r} is no IP address: give one") from None
    addresses = [word for words in found for word in words]
    if twice := next((word for word in addresses if addresses.count(word) > 1), None):
        raise InputError(f"{file}: {twice} is there twice: every server and device has its own address")
    return tuple(Server(words[0], tuple(words[1:])) for words in found)


def rank_table(
    servers: Sequence[Server], node_at: Sequence[int], device_num: int, positions: Sequence[int] | None = None
) -> str:
    """The table as JSON: server number i, leaf by leaf, runs node `node_at[i]`, whose ranks follow each other, or where
    `positions` put them.
    """
    order = range(device_num) if positions is None else sorted(range(device_num), key=lambda rank: positions[rank])
    listed = []
    for server, node in zip(servers, node_at, strict=True):
        size = len(server.devices)
        ranks = order[node * size : (node + 1) * size]
        listed.append(
            {
                "server_id": server.address,
                "pod_ip": server.address,
                "device": [
                    {"device_id": str(device), "device_ip": server.devices[device], "rank_id": str(rank)}
                    for device, rank in enumerate(ranks)
                ],
                "host_nic_ip": "reserve",
            }
        )
    table = {"version": "1.0", "server_count": str(len(listed)), "server_list": listed, "status": "completed"}
    return json.dumps(table, indent=1) + "\n"
