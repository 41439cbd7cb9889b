"""The host beside the NPUs, where optimizer states may stay between updates."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """What one device has of its host.

    bandwidth_Bps  copies between host and device memory, one direction at a time
    memory_B       host memory for one device; None where nobody says, so that it is no limit
    """

    bandwidth_Bps: float
    memory_B: float | None
