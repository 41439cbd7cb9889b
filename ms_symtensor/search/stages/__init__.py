"""Pipeline stages and micro-batches: what every shape of a step takes at least, and the best found."""
