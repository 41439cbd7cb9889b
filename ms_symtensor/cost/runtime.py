"""Run-times: what the software that runs a program does with it. Data, one file each in `runtimes/`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ms_symtensor.cost.bill import Part
from ms_symtensor.cost.overlap import OVERLAPS, PREFIX, SLOWDOWN, named, require_known
from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel

DEFAULT = "mindspore_graph"
TOLD = (DEFAULT, "mindformers_graph")
"""What reads a `parallel_speed_up.json`."""
FOLDER = Path(__file__).with_name("runtimes")
HIDEABLE = tuple(part.value for part in Part if part is not Part.COMPUTE)


@dataclass(frozen=True)
class Hiding:
    """Communication that runs beside computation: a `share` of it, up to the share `window` of the computation of its pass
    (forward for gathers of weights, backward for sums of gradients), in `passes` ("recompute": what is recomputed of the
    backward one); a hidden second slows the computation down by
    `slowdown` seconds.
    """

    window: float
    slowdown: float
    share: float = 1.0
    passes: tuple[str, ...] = ("forward", "backward")


@dataclass(frozen=True)
class Stored:
    """Bytes of a parameter, where weights are stored in the type that products read.

    `weight`: what products read; `master`: a float32 copy beside it (2: its lower half alone); `gradient`: as summed over
    micro-batches; `states`: the optimizer's. `level`: what the copies of a parameter share, by levels of ZeRO (master and states,
    gradients, weights); None: as the plan's optimizer does. `update`: beside these, of the largest parameter while it is updated.
    """

    weight: int = 2
    master: int = 4
    gradient: int = 4
    states: int = 8
    level: OptimizerLevel | None = None
    update: int = 0


@dataclass(frozen=True)
class Runtime:
    """What a run-time does.

    Attributes:
        name: as `--runtime` takes it.
        description: one sentence.
        hides: what of communication runs beside computation.
        is_eager: a host launches kernel by kernel, so that a pass takes at least its launches times `host_overhead_s` of the
            device.
        is_blocking: the host waits for every kernel that it launches, so that launches stand between kernels
            (CUDA_LAUNCH_BLOCKING=1 of NVIDIA's run-time).
        fuses: classes of the zoo's cells whose own operators run as one kernel: they read and write what crosses the cell's
            border, and keep nothing else for the backward pass.
        bucket_B: bytes of the messages that sums of gradients and gathers of weights are merged into; 0: one for every
            parameter.
        merges_blocks: they are merged into one message for each block, and one for what is in none.
        stores: what a parameter takes; None: what the program says (`cost.step.memory_B`).
        fragments: bytes that the allocator loses, as a share of activations.
        updates: kernels of a parameter's update, by what each reads and writes ("gf>f"): g its gradient, w the stored weight, f a
            float32 tensor of that shape; a cast ("w>f") of what is float32 already is none. Empty: one kernel.
        gathers_again: products of tensor-parallel ranks that hold parts of the tokens keep their own part, and gather the rest
            again in the backward pass.
        hide: what the user said is hidden, beside the file (`--hide`).
    """

    name: str
    description: str
    hides: Mapping[Part, Hiding] = field(default_factory=dict)
    is_eager: bool = False
    is_blocking: bool = False
    fuses: frozenset[str] = frozenset()
    bucket_B: float = 0.0
    merges_blocks: bool = False
    stores: Stored | None = None
    fragments: float = 0.0
    updates: tuple[str, ...] = ()
    gathers_again: bool = False
    hide: str = ""

    def hiding(self, parts: Mapping[Part, bool]) -> "Runtime":
        """This run-time, where `parts` are hidden (True), as its file says or else wholly, or not (False)."""
        hides = {part: hiding for part, hiding in self.hides.items() if parts.get(part, True)}
        hides |= {part: DEFAULT_HIDING for part, wanted in parts.items() if wanted and part not in hides}
        return replace(self, hides=hides)

    @property
    def least_share(self) -> float:
        """The least part of a step without hiding that hiding leaves of it. What is hidden is no more than the computation beside
        it, so at most half of the two; and each hidden second slows the computation down.
        """
        return 1.0 - max((1.0 - one.slowdown for one in self.hides.values()), default=0.0) / 2


DEFAULT_HIDING = Hiding(window=1.0, slowdown=SLOWDOWN)


def known_runtimes() -> tuple[str, ...]:
    """The names that `load` takes."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.yaml")))


@cache
def load(name: str) -> Runtime:
    """The run-time called `name`.

    Raises:
        InputError: for an unknown name.
    """
    if name not in known_runtimes():
        raise InputError(f"unknown run-time {name!r}: known are {', '.join(known_runtimes())}")
    data: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    hides = {
        Part(part): Hiding(**{name: _frozen(each["value"]) for name, each in one.items()})
        for part, one in (data.get("hides") or {}).items()
    }
    plain = ("is_eager", "bucket_B", "merges_blocks", "fragments", "gathers_again")
    return Runtime(
        data["name"],
        " ".join(data["description"].split()),
        hides,
        fuses=frozenset(data["fuses"]["value"]),
        stores=Stored(**data["stores"]["value"]) if "stores" in data else None,
        updates=tuple(kernel for part in data.get("updates", {}).values() for kernel in part["value"]),
        **{name: data[name]["value"] for name in plain if name in data},
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def runtime_of(name: str, hide: str = "") -> Runtime:
    """The run-time called `name`, with what the text `hide` says is hidden (`gradients,weights`, or none).

    Raises:
        InputError: for an unknown name, and for a word that names nothing that can be hidden.
    """
    found = load(name)
    return replace(_told(found.hiding(hidden_parts(hide)), named(hide)), hide=hide) if hide else found


def _told(runtime: Runtime, names: tuple[str, ...]) -> Runtime:
    """`runtime` with these settings of MindSpore's. A part that several hide has the passes of all, and windows that add up."""
    require_known(names)
    if names and runtime.name not in TOLD:
        raise InputError(f"{PREFIX}{names[0]} is a setting of MindSpore's graphs, not of --runtime {runtime.name}")
    hides = dict(runtime.hides)
    for name in names:
        setting = OVERLAPS[name]
        for part in setting.parts:
            own = hides.get(part)
            window = min(1.0, setting.window + (own.window if own else 0.0))
            passes = (*(own.passes if own else ()), *setting.passes)
            hides[part] = Hiding(window, SLOWDOWN, passes=tuple(dict.fromkeys(passes)))
    return replace(runtime, hides=hides)


def hidden_parts(text: str) -> Mapping[Part, bool]:
    """What `--hide gradients,weights` asks for; "none" hides nothing.

    Raises:
        InputError: for a word that names nothing that can be hidden.
    """
    words = [word.strip() for word in text.split(",") if word.strip() and not word.strip().startswith(PREFIX)]
    if words == ["none"]:
        return dict.fromkeys((Part(name) for name in HIDEABLE), False)
    for word in words:
        if word not in HIDEABLE:
            raise InputError(
                f"--hide {word!r} is nothing that can be hidden: give some of {', '.join(HIDEABLE)}, or none"
            )
    return {Part(word): True for word in words}
