"""MindFormers 2.1 in PyNative mode, with hyper-parallel: what its files say, what its step is made of, and what it costs.

calls      collectives of one rank, and its sharded units, as frozen data
modelled   what hyper-parallel sends for those units and for the pipeline's borders
"""

NAME = "mindformers-pynative"
"""What `--target` calls it."""
