"""The commands of `symtensor`, one file each: TEXT, EXAMPLES, `arguments(command)` and `run(chosen)`.

The top of such a file imports nothing that plans; `run` does. A new command is a file here and its name in COMMANDS.
"""

COMMANDS = (
    "plan", "fit", "estimate", "verify", "prove", "audit", "explain", "report", "capture", "validate", "calibrate", "compare",
    "mindformers", "reshard", "serve", "traffic", "schedule", "sweep",
)  # fmt: skip
"""In the order of --help."""
