"""A plan at every point of a grid of devices, clusters, batches and changed clusters; what the step hangs on at each."""
