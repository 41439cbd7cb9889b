"""MindFormers' PyNative training, traced and executed on a CPU, in processes of its own.

interpreter   which Python has MindFormers, and how a child is asked and answers
session       one rank of a described world: its calls of collectives, its sharded units, its phase
stand_in      what MindFormers imports from hyper-parallel, where that is not installed: it records instead of communicating
collectives   MindSpore's communication functions, recorded
model         a configuration through MindFormers' own classes to the parallel network of each stage
trace         one micro-batch forward and backward on the `meta` device: no kernels, no memory
child         the process that traces; audit: what it found
executed      processes that communicate
definitions   what a CPU lacks of MindFormers' operators
proof_worker  one process of a proof; prove: what they found

But for `interpreter`, `audit` and `prove` files here are imported by children only, whose environment need not have what the
planner needs.
"""
