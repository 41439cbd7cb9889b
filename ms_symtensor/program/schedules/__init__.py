"""Pipeline schedules, one file each (those of one family together): the order of passes, by MindSpore's names.

A new schedule is a file here and its name in SCHEDULERS; what it keeps in flight and what it takes follow from its order.
"""

from ms_symtensor.program.schedules.gpipe import GPIPE
from ms_symtensor.program.schedules.one_f_one_b import ONE_F_ONE_B
from ms_symtensor.program.schedules.seqpipe import SEQPIPE, SEQSMARTVPP, SEQVPP

SCHEDULERS = {one.name: one for one in (ONE_F_ONE_B, GPIPE, SEQPIPE, SEQVPP, SEQSMARTVPP)}
"""In the order in which pins count them (`search.constraints.limits`)."""

DEFAULT_SCHEDULER = ONE_F_ONE_B.name
