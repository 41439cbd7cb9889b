"""A network with one block in place of many: what is found on it is carried on to its full depth and batch."""
