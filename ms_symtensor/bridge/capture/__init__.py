"""From a network in memory to an operator graph, and to what its user has set by hand."""
