"""The way from one plan to another: which bytes of every weight each rank lacks, how they come to it, what that takes.

slices      which slice of a tensor every rank holds
units       tensors that move together, and equal ones of these once
alignment   on which device each rank of the second plan runs
transfers   who sends which cells to whom, and by which collective
price       the seconds of that, by the cluster's formulas
buckets     in which portions, so that a device's memory is enough
reshard     all of it
proof       the moves, made by local processes with numpy, at reduced size (`worker` is one)
"""
