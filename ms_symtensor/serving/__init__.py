"""Serving: the strategy, the batch and the instances that give most tokens a second and device.

request    what is asked for
strategy   how one instance is cut: pipeline, attention's data and tensor parallelism, experts
memory     bytes of weights and of the cache on a device
layer      kernels and collectives of a decoder layer, by `cost.kernel` and the cluster's formulas
phases     the time of a prefill, and of a decode step
search     every strategy, every batch, every number of instances
turns      prefill and decode in turns on the same devices
commands   what engines are started with
"""
