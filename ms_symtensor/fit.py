"""`symtensor fit`: the largest batch or the longest sequence that fits, or the fewest devices."""

from collections.abc import Callable
from dataclasses import dataclass

from ms_symtensor.cluster.topology import MOST_DEVICES, Cluster
from ms_symtensor.errors import ImpossibleError, InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.models import Model, planned
from ms_symtensor.search.constraints.floor import floor_of
from ms_symtensor.search.constraints.obstacle import DoesNotFitError, amount
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.fit import Attempt, Numbers, largest, smallest
from ms_symtensor.search.possible import require_devices
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

UP_TO = {"global_batch_size": 4096, "seq_length": 1 << 20, "device_num": 4096}
"""The largest numbers that are tried unless others are asked for: each twice the one before is another search (empirical)."""

STARTS = {"global_batch_size": 16, "seq_length": 4096, "device_num": 1}
"""The first numbers that are tried unless others are asked for."""

TOKENS = 128
"""Sequences are multiples of so many tokens, which fill the rows of a product's tile."""

SHOWN = 250
"""Characters of a reason that are shown."""

Planned = tuple[Plan, Graph]


@dataclass(frozen=True)
class Fit:
    """The answer to a question, with its plan and graph, and all that was `tried`. `is_bounded`: larger numbers were not."""

    answer: Attempt[Planned]
    tried: tuple[Attempt[Planned], ...]
    is_bounded: bool = False

    @property
    def best(self) -> Planned:
        """The plan at the answer, and the graph that it is for."""
        assert self.answer.found is not None
        return self.answer.found

    @property
    def plans(self) -> tuple[Attempt[Plan], ...]:
        """All that was tried, without graphs."""
        return tuple(Attempt(one.number, one.found and one.found[0], one.why) for one in self.tried)


def fit(
    name: str,
    numbers: Numbers,
    start: int,
    model_at: Callable[[int], Model],
    request_of: Callable[[Model, int], Request],
    progress: Callable[[str], None] = lambda _: None,
) -> Fit:
    """The fewest devices (`name` is device_num), or else the largest number of `name`, with which a plan is found.

    `numbers` are tried, the first one at `start`. `model_at(number)` is the network there, `request_of(model, number)` what is
    asked of it.

    Errors: InfeasibleError where no number fits that was tried; InputError where none can be asked for.
    """
    wrong: list[InputError] = []

    def attempt(number: int) -> Attempt[Planned]:
        try:
            model = model_at(number)
            request = request_of(model, number)
            require_devices(request.cluster, request.device_num)
            if (least_B := floor_of(model.graph).of(request)) > request.limit_B:
                return Attempt(number, None, f"parameters and buffers alone take {amount(int(least_B))} of a device")
            return Attempt(number, planned(model, request, lambda text: progress(f"{name} {number}: {text}")))
        except DoesNotFitError as error:
            missing_B = error.obstacle.peak_B - request.limit_B
            return Attempt(number, None, f"{amount(missing_B)} too much of a device ({error.obstacle.layout})")
        except (InfeasibleError, InvalidStrategyError, ImpossibleError) as error:
            return Attempt(number, None, str(error))
        except InputError as error:
            wrong.append(error)
            return Attempt(number, None, str(error))

    fewest = name == "device_num"
    tried = tuple(smallest(numbers, attempt) if fewest else largest(numbers, start, attempt))
    fitting = [one for one in tried if one.fits]
    if not fitting:
        if len(wrong) == len(tried):
            raise wrong[0]
        last = (max if fewest else min)(tried, key=lambda one: one.number)
        listed = ", ".join(str(one.number) for one in tried)
        raise InfeasibleError(
            f"no {name} fits of those that were tried ({listed}): with {last.number}, {last.why[:SHOWN]}"
        )
    answer = (min if fewest else max)(fitting, key=lambda one: one.number)
    return Fit(answer, tried, is_bounded=not fewest and answer.number >= numbers.most)


def numbers_of(name: str, device_num: int | None, up_to: int | None, cluster: Cluster) -> Numbers:
    """The numbers of `name` that are tried: up to `up_to`, or to UP_TO, and to as many devices as `cluster` has."""
    most = UP_TO[name] if up_to is None else up_to
    if name == "device_num":
        return Numbers(1, min(most, MOST_DEVICES, cluster.max_ranks or MOST_DEVICES), 8)
    return (
        Numbers(1, most, device_num or 1) if name == "global_batch_size" else Numbers(min(TOKENS, most), most, TOKENS)
    )
