"""What views say is true of every division of the blocks: no step is faster, and no fullest stage smaller."""

import random
from itertools import combinations, pairwise

import numpy as np
import pytest

from ms_symtensor.search.bounds.views import of_case, of_shape
from ms_symtensor.search.folded.chain import Chain, Part
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.stage_cases import Case
from ms_symtensor.search.stages.stage_layers import laid_out

DEPTHS = (1, 3, 5, 1)
OCCURRENCES = occurrences(DEPTHS)
PLACE_OF = [p for p, n in enumerate(OCCURRENCES) for _ in range(n)]
BLOCKS = sum(DEPTHS[1:-1])


def _places(draw):
    """Costs of every place; what comes before and behind the blocks may be larger than these, and is not made again."""
    found = []
    for place in range(len(OCCURRENCES)):
        scale = draw.choice((0.1, 1, 8)) if place in (0, len(OCCURRENCES) - 1) else 1.0
        kept_B = scale * draw.uniform(1, 3)
        is_block = 0 < place < len(OCCURRENCES) - 1
        saved_B = draw.uniform(0, kept_B) if is_block else 0.0
        again_s, once_s = draw.uniform(0, 0.3) * is_block, draw.uniform(0, 2)
        found.append(Part(scale, again_s, kept_B, kept_B - saved_B, scale * draw.uniform(0, 9), is_block, once_s))
    return found


def _held(start, end, is_first, is_last):
    parts = PLACE_OF[0 if is_first else start + 1 : len(PLACE_OF) if is_last else end + 1]
    return tuple(parts.count(p) for p in range(len(OCCURRENCES)))


@pytest.mark.parametrize("seed", range(20))
def test_no_division_is_faster_or_smaller_than_its_views(seed):
    draw = random.Random(seed)
    stages, number, places = draw.choice((1, 2, 3, 4)), draw.choice((4, 8)), _places(draw)
    shape, parts = Shape(stages, number, (1,), 1, draw.choice((1, 2))), [places[p] for p in PLACE_OF]
    for cuts in combinations(range(1, BLOCKS), stages - 1):
        runs = list(pairwise((0, *cuts, BLOCKS)))
        layers = [end - start for start, end in runs]
        for again in (False, True):
            found = laid_out(Chain(parts), layers, layers if again else [0] * stages, shape.turns)
            step_s = shape.turns.step_s([one.each_s for one in found], max(one.once_s for one in found))
            peak_B = max(one.peak_B for one in found)
            every = [of_shape(OCCURRENCES, shape)]
            for stage, (start, end) in enumerate(runs):
                held = _held(start, end, stage == 0, stage == stages - 1)
                case = Case(held, shape.in_flight(stage), _held(0, runs[0][1], True, stages == 1))
                every.append(of_case(OCCURRENCES, shape, case))

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
def test_a_step_is_no_faster_than_its_only_run_that_makes_anything_again(seed):
    draw = random.Random(seed)
    stages, number, places = draw.choice((2, 3, 4)), draw.choice((4, 8)), _places(draw)
    shape, parts = Shape(stages, number, (1,), 1, draw.choice((1, 2))), [places[p] for p in PLACE_OF]
    for cuts in combinations(range(1, BLOCKS), stages - 1):
        runs = list(pairwise((0, *cuts, BLOCKS)))
        layers = [end - start for start, end in runs]
        for stage, (start, end) in enumerate(runs):
            found = laid_out(
                Chain(parts), layers, [n * (place == stage) for place, n in enumerate(layers)], shape.turns
            )
            step_s = shape.turns.step_s([one.each_s for one in found], max(one.once_s for one in found))
            held = _held(start, end, stage == 0, stage == stages - 1)
            views = of_case(OCCURRENCES, shape, Case(held, shape.in_flight(stage)))
            each, again, _, once = views.seconds.transpose(1, 0, 2)
            seconds = each @ [p.each_s for p in places] + once @ [p.once_s for p in places]
            seconds, again = seconds[1:], again[1:]  # the first one is of an average stage
            assert np.all(seconds + again @ [p.again_s for p in places] <= step_s * (1 + 1e-9))
