"""From a plan to a network: strategies, recomputation, stages, the training step around it."""
