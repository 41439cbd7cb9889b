"""MindFormers 2.1 in PyNative mode, with hyper-parallel: what its files say, what its step is made of, and what it costs.

shape       dims of a network, from its file
degrees     how ranks share the work, from a file's sections
checks      what MindFormers' classes refuse, mirrored
calls       collectives of one rank, and its sharded units, as frozen data
predicted   the collectives that MindFormers' code makes
parameters  the units, predicted
modelled    what hyper-parallel sends for those units and for the pipeline's borders
kept        activations that wait for the backward pass
"""

NAME = "mindformers-pynative"
"""What `--target` calls it."""
