"""Errors that a user can act on: each says what was wrong, where, and what to do."""


class SymTensorError(Exception):
    """Base of all errors that ms_symtensor raises for its user; the command line prints it as one line, exit code 2."""


class InputError(SymTensorError):
    """A request that cannot be met as written: an unknown name, a number that divides nothing, a file that is damaged."""


class ImpossibleError(InputError):
    """Numbers that no plan can have together: the message names the condition that they break, and the nearest that work."""


class UnknownOperatorError(SymTensorError):
    """An operator without a signature. It never costs nothing: add its line (ms_symtensor.register, ms_symtensor/ops)."""


class InvalidStrategyError(SymTensorError):
    """A strategy that MindSpore would reject, or that would train a wrong model."""


class InfeasibleError(SymTensorError):
    """Nothing in the searched space fits; the message names the smallest obstacle and the nearest change that would."""


class CompilerError(SymTensorError):
    """MindSpore's compiler is missing, cannot be driven on this machine, or rejected the program."""


class EndedBySignal(SystemExit):
    """A signal told this process to end, with this exit code. What user's code does about its own end is no such thing."""


class ExecutionError(SymTensorError):
    """A compiled program could not be executed on this machine, so that nothing is known about its results."""
