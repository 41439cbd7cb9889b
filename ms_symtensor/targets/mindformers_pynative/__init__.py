"""MindFormers 2.1 in PyNative mode, with hyper-parallel: what its files say, what its step is made of, and what it costs.

shape       dims of a network, from its file
layers      the layers of a stage, those that run alike together
degrees     how ranks share the work, from a file's sections
checks      what MindFormers' classes refuse, mirrored
calls       collectives of one rank, and its sharded units, as frozen data
predicted   the collectives that MindFormers' code makes
parameters  the units, predicted
modelled    what hyper-parallel sends for those units and for the pipeline's borders
kept        activations that wait for the backward pass
work        kernels of a micro-batch; groups: which ranks share what; price: seconds and bytes of a step
search      the fastest degrees that fit; network, file, planning: from a network to its file, and back to its price
reduced     a file at dims that local processes can run; hyper_parallel: hyper-parallel's own file
"""

NAME = "mindformers-pynative"
"""What `--target` calls it."""
