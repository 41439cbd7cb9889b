"""What a compiled program says: collectives, gradient sums, live activations, its price."""
