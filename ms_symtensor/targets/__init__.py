"""What a plan can be written for: a room for each, with its rules, its checks, its prices and its files."""
