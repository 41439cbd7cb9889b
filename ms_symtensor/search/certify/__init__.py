"""The certificate: bounds of step layouts that know of memory and of what recomputation costs."""
