"""The search mode `symtensor` inside MindSpore."""
