"""MindSpore's parallel compiler driven without an NPU, and its graph read as frozen data."""
