"""Who sends how much to whom in a step, over which links, and where nodes should stand."""
