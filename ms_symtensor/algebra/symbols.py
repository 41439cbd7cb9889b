"""Every symbol of the cost formulas is made here, once, with its unit and its meaning."""

from dataclasses import dataclass
from typing import Any

import sympy


@dataclass(frozen=True)
class Definition:
    """What a symbol stands for; `unit` is "1" for a pure number."""

    symbol: sympy.Symbol
    unit: str
    meaning: str
    latex: str | None


_definitions: dict[str, Definition] = {}


def symbol(name: str, unit: str, meaning: str, latex: str | None = None, **assumptions: bool) -> sympy.Symbol:
    """The symbol `name`, the same object for the same definition.

    Symbols are positive unless `assumptions` (sympy's) are given instead. The name is a Python identifier, since it
    becomes the keyword argument of compiled formulas.

    Errors: ValueError if the name is no identifier, or already stands for something else.
    """
    if not name.isidentifier():
        raise ValueError(f"symbol {name!r}: not a Python identifier")
    new = Definition(sympy.Symbol(name, **(assumptions or {"positive": True})), unit, meaning, latex)
    known = _definitions.setdefault(name, new)
    if known != new:
        raise ValueError(
            f"symbol {name!r} already means {known.meaning!r} [{known.unit}] with assumptions "
            f"{known.symbol.assumptions0}; it cannot also mean {meaning!r} [{unit}]"
        )
    return known.symbol


def definition(of: sympy.Symbol) -> Definition:
    """What `of` means. KeyError if it was not made by `symbol`."""
    return _definitions[of.name]


def is_defined(candidate: Any) -> bool:
    """Whether `candidate` is a symbol made by `symbol`."""
    return isinstance(candidate, sympy.Symbol) and candidate.name in _definitions


# The device. Its numbers come from the cluster's YAML file.
F_cube = symbol("F_cube", "FLOP/s", "peak of the matrix unit in half precision", r"F_\mathrm{cube}")
F_cube32 = symbol("F_cube32", "FLOP/s", "peak of the matrix unit in float32", r"F_\mathrm{cube32}")
eta_cube = symbol("eta_cube", "1", "fraction of the peak that a large matrix product reaches", r"\eta_\mathrm{cube}")
eta_cube32 = symbol("eta_cube32", "1", "that fraction in float32", r"\eta_\mathrm{cube32}")
eta_step = symbol(
    "eta_step", "1", "share of its rate that a product keeps inside a training step", r"\eta_\mathrm{step}"
)
eta_att = symbol("eta_att", "1", "fraction of the peak that fused attention reaches", r"\eta_\mathrm{att}")
D_att = symbol("D_att", "1", "head size below which softmax holds fused attention up", r"D_\mathrm{att}")
E_wave = symbol("E_wave", "1", "elements of a product that the matrix unit computes at once", r"E_\mathrm{wave}")
K_fill = symbol("K_fill", "1", "length of the summed dim that fills the matrix unit's pipeline", r"K_\mathrm{fill}")
R_wave = symbol("R_wave", "1", "queries that fused attention works on at once", r"R_\mathrm{wave}", nonnegative=True)
S_fill = symbol("S_fill", "1", "keys that fused attention computes ahead", r"S_\mathrm{fill}", nonnegative=True)
F_vec = symbol("F_vec", "FLOP/s", "peak of the vector unit in half precision", r"F_\mathrm{vec}")
B_hbm = symbol("B_hbm", "B/s", "peak bandwidth of the device memory", r"B_\mathrm{hbm}")
eta_hbm = symbol("eta_hbm", "1", "fraction of the bandwidth that a streaming operator reaches", r"\eta_\mathrm{hbm}")
eta_read = symbol("eta_read", "1", "fraction of it that a kernel reaches that mostly reads", r"\eta_\mathrm{read}")
eta_vec = symbol("eta_vec", "1", "fraction of the vector unit's peak that a kernel reaches", r"\eta_\mathrm{vec}")
g_L2 = symbol("g_L2", "1", "how many times as fast as device memory the level-2 cache is", r"g_\mathrm{L2}")
t_op = symbol("t_op", "s", "fixed cost of one operator", r"t_\mathrm{op}")
t_coll = symbol("t_coll", "s", "fixed cost of one collective", r"t_\mathrm{coll}")
t_host = symbol("t_host", "s", "host time to launch one operator eagerly", r"t_\mathrm{host}")
M_hbm = symbol("M_hbm", "B", "device memory that the framework can use", r"M_\mathrm{hbm}")
L2 = symbol("L2", "B", "size of the level-2 cache", r"M_\mathrm{L2}")
B_host = symbol("B_host", "B/s", "bandwidth of copies between host and device", r"B_\mathrm{host}")
gamma = symbol("gamma", "s/B", "time to add one received byte to a local one", r"\gamma", nonnegative=True)

# Communication. Symbols of the topology's levels are made from the levels' names.
n = symbol("n", "B", "bytes of the whole tensor of a collective", "n")


def group_size(level: str) -> sympy.Symbol:
    """How many members a group has at topology level `level`, p_<level>."""
    meaning = f"members of the group at level '{level}'"
    return symbol(f"p_{level}", "1", meaning, _with_level("p", level), positive=True, integer=True)


def latency(level: str) -> sympy.Symbol:
    """Latency of one step at topology level `level`, alpha_<level>."""
    return symbol(f"alpha_{level}", "s", f"latency of one step at level '{level}'", _with_level(r"\alpha", level))


def bandwidth(level: str) -> sympy.Symbol:
    """Effective one-way bandwidth at topology level `level`, B_<level>: of a link (mesh) or a rank's port (others)."""
    meaning = f"effective one-way bandwidth of a link (mesh) or port (switch, ring) at level '{level}'"
    return symbol(f"B_{level}", "B/s", meaning, _with_level("B", level))


def _with_level(letter: str, level: str) -> str:
    escaped = level.replace("_", r"\_")
    return rf"{letter}_\mathrm{{{escaped}}}"
