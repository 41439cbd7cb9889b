"""All that touches MindSpore. Its rooms, each of which imports only rooms above it:

compiler   MindSpore's parallel compiler driven without an NPU, its graph read as frozen data
compiled   what such a program says: collectives, gradient sums, live activations, its price
capture    a network in memory as an operator graph, and what its user has set by hand
apply      a plan onto a network: strategies, recomputation, stages, the training step
judge      verify a plan, audit a user's own strategies
plugin     the search mode `symtensor` inside MindSpore
proof      a compiled program executed on local processes, against one process
pynative   MindFormers' PyNative mode, traced and executed in a process of its own
"""
