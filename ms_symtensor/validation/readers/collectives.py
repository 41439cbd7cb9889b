"""ascend_collectives.csv: published times of collectives on Ascend."""

from ms_symtensor.cluster.hccl import Collective as Kind
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers.devices import named_cluster
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Collective, Form, Timing

COLUMNS = ("device", "software", "collective", "message_B", "ranks", "level", "time_us", "note")
SMALL_B, MOST_RANKS = 1e6, 1 << 16


def timing(row: Row) -> Timing:
    """UnusableRowError for what is no measurement, or a chip that no cluster file describes.

    A call that the host waits for takes mostly the host's time, which these tables do not state: it is a kind of its own.
    """
    if "illustrative" in row.text("note"):
        raise UnusableRowError("an illustration, no measurement, as its note says")
    name = row.text("collective").split("(")[0].strip()
    if name not in {kind.value for kind in Kind}:
        raise UnusableRowError(f"collective {name} has no formula")
    size_B = row.positive("message_B")
    kind = f"{name}, {'below 1 MB' if size_B < SMALL_B else '1 MB and more'}"
    if "host-synchronised" in row.text("note"):
        kind = f"{name}, the host waits"
    ranks = row.count("ranks")
    if ranks > MOST_RANKS:
        raise row.malformed("ranks", f"is above {MOST_RANKS}, which no cluster has")
    run = Collective(name, ranks, size_B)
    return Timing(row.line, kind, named_cluster(row.text("device")), run, row.positive("time_us") * 1e-6)


FORM = Form("ascend_collectives", COLUMNS, timing)
