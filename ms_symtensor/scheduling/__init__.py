"""The order in which pipeline stages take their passes, forward, backward of activations and backward of weights."""
