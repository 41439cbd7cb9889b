"""ascend_collectives.csv and vidur_collective_times.csv: published times of collectives."""

from ms_symtensor.cluster.hccl import Collective as Kind
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.devices import gpu_cluster, named_cluster
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Collective, Timing

COLUMNS = ("device", "software", "collective", "message_B", "ranks", "level", "time_us", "note")
PER_NODE = "devices_per_node"
VIDUR_COLUMNS = ("network", "collective", "ranks", "size_elements_fp16_or_bytes", PER_NODE, "median_ms")
VIDUR_KINDS = {"all_reduce": "AllReduce", "send_recv": "Send"}
GPUS_OF_A_NODE = 8
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


def vidur_timing(row: Row) -> Timing:
    """UnusableRowError for GPUs that are joined in pairs only, which no cluster file describes, and other collectives.

    vidur's sizes are in bytes (collectives_wrapper.py), and NCCL's kernel is timed.
    """
    words, name, ranks, each = row.text("network"), row.text("collective"), row.count("ranks"), row.count(PER_NODE)
    if "pairwise" in words:
        raise UnusableRowError("no cluster file has GPUs that are joined in pairs")
    if name not in VIDUR_KINDS:
        raise UnusableRowError(f"collective {name} has no formula")
    if ranks > MOST_RANKS or each > GPUS_OF_A_NODE or ranks % each or GPUS_OF_A_NODE % each:
        raise row.malformed(PER_NODE, f"does not divide the ranks and a node of {GPUS_OF_A_NODE}")
    size_B = row.positive("size_elements_fp16_or_bytes")
    where = "one node" if ranks == each else "several nodes"
    kind = f"{VIDUR_KINDS[name]}, {where}, {'below 1 MB' if size_B < SMALL_B else '1 MB and more'}"
    run = Collective(VIDUR_KINDS[name], ranks, size_B, (each, GPUS_OF_A_NODE))
    return Timing(row.line, kind, gpu_cluster(words.replace("_", " ")), run, row.positive("median_ms") * 1e-3)


FORM = Form("ascend_collectives", COLUMNS, timing)
VIDUR_FORM = Form("vidur_collectives", VIDUR_COLUMNS, vidur_timing)
