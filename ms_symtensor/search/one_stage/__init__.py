"""The best choice on one stage under a memory limit."""
