"""What views say is true of every division of the blocks: no step is faster, and no fullest stage smaller."""

import random
from dataclasses import replace
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

import numpy as np
import pytest

from ms_symtensor.program.pipeline import dealt
from ms_symtensor.search.bounds.views import of_case, of_shape
from ms_symtensor.search.folded.chain import Chain, Part
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.division_cases import Division
from ms_symtensor.search.stages.stage_cases import Case
from ms_symtensor.search.stages.stage_layers import laid_out

DEPTHS = {1: (1, 3, 5, 1), 2: (1, 8, 1)}
"""By the runs of blocks per stage: stages hold several where all blocks are of one kind."""

BLOCKS = 8


class Network(NamedTuple):
    """How often every place is there, what each costs, and the place of every part."""

    occurrences: tuple[int, ...]
    places: list[Part]
    place_of: list[int]

    def held(self, start, end, is_first, is_last):
        """Every place as often as a stage has it that holds the blocks from `start` to `end`."""
        parts = self.place_of[0 if is_first else start + 1 : len(self.place_of) if is_last else end + 1]
        return tuple(parts.count(p) for p in range(len(self.occurrences)))

    def peak_B(self, shape, stage, held, again):
        """Bytes of a stage, pass by pass: what waits in every run of its blocks, and what of its run the passing one has."""
        parts = [place for place, n in enumerate(held) for _ in range(n)]
        blocks = [place for place in parts if self.places[place].is_block]
        ends = [*accumulate(dealt((len(blocks),), shape.interleave))]
        runs = [blocks[start:end] for start, end in pairwise((0, *ends))]
        runs[0] = [*[0] * held[0], *runs[0]]
        runs[-1] = [*runs[-1], *[len(held) - 1] * held[-1]]
        kept_B = [
            sum(self.places[p].kept_recomputed_B if again else self.places[p].kept_B for p in run) for run in runs
        ]
        waiting = [
            [n + (run == one.run) for run, n in enumerate(one.waiting)]
            for one in shape.turns.passes(stage, shape.stages)
        ]
        return max(np.dot(one, kept_B) for one in waiting) + sum(self.places[p].at_rest_B for p in parts)


def _network(draw, interleave):
    """What comes before and behind the blocks may be larger than these, and is not made again."""
    depth, found = occurrences(DEPTHS[interleave]), []
    for place in range(len(depth)):
        scale = draw.choice((0.1, 1, 8)) if place in (0, len(depth) - 1) else 1.0
        kept_B = scale * draw.uniform(1, 3)
        is_block = 0 < place < len(depth) - 1
        saved_B = draw.uniform(0, kept_B) if is_block else 0.0
        again_s, once_s = draw.uniform(0, 0.3) * is_block, draw.uniform(0, 2)
        found.append(Part(scale, again_s, kept_B, kept_B - saved_B, scale * draw.uniform(0, 9), is_block, once_s))
    return Network(depth, found, [p for p, n in enumerate(depth) for _ in range(n)])


def _shape(draw, stages):
    """Stages of one or two runs; micro-batches go round two in groups of as many as there are stages."""
    interleave = draw.choice((1, 2))
    number = draw.choice((4, 8)) if interleave == 1 else stages * draw.choice((1, 2, 3))
    return Shape(stages, number, (1,), 1, interleave)


def _divisions(shape):
    """The blocks of every stage, from and to, in every division that leaves each run a block."""
    for cuts in combinations(range(1, BLOCKS), shape.stages - 1):
        runs = list(pairwise((0, *cuts, BLOCKS)))
        if min(end - start for start, end in runs) >= shape.interleave:
            yield runs


@pytest.mark.parametrize("seed", range(20))
def test_no_division_is_faster_or_smaller_than_its_views(seed):
    draw = random.Random(seed)
    shape = _shape(draw, draw.choice((1, 2, 3, 4)))
    stages, of = shape.stages, _network(draw, shape.interleave)
    places, chain = of.places, Chain([of.places[p] for p in of.place_of])
    for runs in _divisions(shape):
        layers = [end - start for start, end in runs]
        for again in (False, True):
            found = laid_out(chain, layers, layers if again else [0] * stages, shape.turns)
            step_s = shape.turns.step_s([one.each_s for one in found], max(one.once_s for one in found))
            held = [of.held(*run, stage == 0, stage == stages - 1) for stage, run in enumerate(runs)]
            peak_B = max(of.peak_B(shape, stage, its, again) for stage, its in enumerate(held))
            every = [of_shape(of.occurrences, shape)]
            for stage, its in enumerate(held):
                case = Case(its, shape.flights(stage), of.held(0, runs[0][1], True, stages == 1))
                every.append(of_case(of.occurrences, shape, case))

            for views in every:
                each, *twice, once = views.seconds.transpose(1, 0, 2)
                kept, *saved, rest = views.size_B.transpose(1, 0, 2)
                seconds = each @ [p.each_s for p in places] + once @ [p.once_s for p in places]
                size_B = kept @ [p.kept_B for p in places] + rest @ [p.at_rest_B for p in places]
                if again:
                    seconds += sum(twice) @ [p.again_s for p in places]
                    size_B -= sum(saved) @ [p.kept_B - p.kept_recomputed_B for p in places]
                assert np.all(seconds <= step_s * (1 + 1e-9)) and np.all(size_B <= peak_B * (1 + 1e-9))


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_no_faster_than_its_only_stage_that_makes_anything_again(seed):
    draw = random.Random(seed)
    shape = _shape(draw, draw.choice((2, 3, 4)))
    of = _network(draw, shape.interleave)
    places, chain = of.places, Chain([of.places[p] for p in of.place_of])
    for runs in _divisions(shape):
        layers = [end - start for start, end in runs]
        for stage, run in enumerate(runs):
            again = [n * (place == stage) for place, n in enumerate(layers)]
            found = laid_out(chain, layers, again, shape.turns)
            step_s = shape.turns.step_s([one.each_s for one in found], max(one.once_s for one in found))
            held = of.held(*run, stage == 0, stage == shape.stages - 1)
            views = of_case(of.occurrences, shape, Case(held, shape.flights(stage)))
            each, *twice, _, once = views.seconds.transpose(1, 0, 2)
            seconds = each @ [p.each_s for p in places] + once @ [p.once_s for p in places]
            seconds += sum(twice) @ [p.again_s for p in places]
            assert np.all(seconds[1:] <= step_s * (1 + 1e-9))  # the first one is of an average stage


@pytest.mark.parametrize("seed", range(20))
def test_stages_that_make_nothing_again_pay_for_none_that_does(seed):
    """The first stage, or the last one, or that of a case alone makes its blocks again."""
    draw = random.Random(seed)
    shape = _shape(draw, draw.choice((2, 3, 4)))
    of, last = _network(draw, shape.interleave), shape.stages - 1
    places, chain = of.places, Chain([of.places[p] for p in of.place_of])
    for runs in _divisions(shape):
        layers = [end - start for start, end in runs]
        held = [of.held(*run, stage == 0, stage == last) for stage, run in enumerate(runs)]
        cases = [(of_shape(of.occurrences, shape), (0, last))]
        for stage in range(1, shape.stages):
            case = Case(held[stage], shape.flights(stage), held[0])
            cases.append((of_case(of.occurrences, shape, case), (stage, 0)))
        for views, known in cases:
            each, *twice, _, once = views.seconds.transpose(1, 0, 2)
            kept, *saved, _, rest = views.size_B.transpose(1, 0, 2)
            for number in range(len(twice) // shape.interleave):
                again = [n * (stage == known[number]) for stage, n in enumerate(layers)]
                found = laid_out(chain, layers, again, shape.turns)
                step_s = shape.turns.step_s([one.each_s for one in found], max(one.once_s for one in found))
                peak_B = max(of.peak_B(shape, stage, its, again[stage]) for stage, its in enumerate(held))
                mine = slice(number * shape.interleave, (number + 1) * shape.interleave)
                seconds = each @ [p.each_s for p in places] + once @ [p.once_s for p in places]
                seconds += sum(twice[mine]) @ [p.again_s for p in places]
                size_B = kept @ [p.kept_B for p in places] + rest @ [p.at_rest_B for p in places]
                size_B -= sum(saved[mine]) @ [p.kept_B - p.kept_recomputed_B for p in places]
                assert np.all(seconds[1:] <= step_s * (1 + 1e-9))  # the first ones are of an average stage
                assert np.all(size_B[1:] <= peak_B * (1 + 1e-9))


@pytest.mark.parametrize("seed", range(20))
def test_no_division_is_faster_or_smaller_than_its_parts_say(seed):
    """Of a whole one, where any of its stages make their blocks again."""
    draw = random.Random(seed)
    shape = replace(_shape(draw, draw.choice((2, 3, 4))), interleave=2)
    shape = replace(shape, micro_batch_num=2 * shape.stages)
    of, last = _network(draw, 2), shape.stages - 1
    places, chain = of.places, Chain([of.places[p] for p in of.place_of])
    for runs in _divisions(shape):
        layers = tuple(end - start for start, end in runs)
        again = [n * draw.choice((0, 1)) for n in layers]
        found = laid_out(chain, layers, again, shape.turns)
        step_s = shape.turns.step_s([one.each_s for one in found], max(one.once_s for one in found))
        held = [of.held(*run, stage == 0, stage == last) for stage, run in enumerate(runs)]
        peaks_B = [of.peak_B(shape, stage, its, again[stage] > 0) for stage, its in enumerate(held)]
        slowest = draw.randrange(shape.stages)
        case = Division(of.occurrences, shape, layers).parts(slowest)[-1].case
        views = of_case(of.occurrences, shape, case)
        each, *twice, elsewhere, once = views.seconds.transpose(1, 0, 2)
        kept, *saved, _, rest = views.size_B.transpose(1, 0, 2)
        seconds = each @ [p.each_s for p in places] + once @ [p.once_s for p in places]
        size_B = kept @ [p.kept_B for p in places] + rest @ [p.at_rest_B for p in places]
        order = [slowest, *(stage for stage in range(shape.stages) if stage != slowest)]
        for number, stage in enumerate(order):
            for run in range(2 * number, 2 * number + 2):
                seconds += twice[run] @ [p.again_s * (again[stage] > 0) for p in places]
                size_B -= saved[run] @ [(p.kept_B - p.kept_recomputed_B) * (again[stage] > 0) for p in places]
        assert np.all(seconds[1:] <= step_s * (1 + 1e-9))  # the first one is of an average stage
        assert np.all(size_B[1:] <= max(peaks_B) * (1 + 1e-9)) and np.allclose(elsewhere, 0.0)
