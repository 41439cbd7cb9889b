"""The choice of layouts on one stage written as a sum of small tables, priced on many meshes at once, and its minimiser."""
