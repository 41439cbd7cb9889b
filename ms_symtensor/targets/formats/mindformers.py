"""`mindformers.yaml`: the keys of a MindFormers training file in graph mode that say the plan."""

from typing import Any

from ms_symtensor.strategy.folder import MINDFORMERS_FILE
from ms_symtensor.strategy.plan import MicroBatchLoss
from ms_symtensor.targets.exporter import CannotSayError, Exporter, Planned
from ms_symtensor.targets.mindformers.dimensions import CLASSES
from ms_symtensor.targets.mindformers.settings import CONTEXT, settings_of
from ms_symtensor.targets.plain_yaml import lines


def _files(planned: Planned) -> dict[str, str]:
    uniform = planned.uniform
    if uniform is None and "model" not in planned.plan.source:
        return {}  # no decoder of the zoo or of a config.json: no target cuts its blocks alike
    if uniform is None:
        raise CannotSayError(
            "MindFormers cuts all blocks alike, and this plan need not: plan with --target mindformers"
        )
    found: dict[str, Any] = {}
    settings = settings_of(uniform.config, uniform.layout)
    # Every rank reads the whole batch: a list of cuts has an entry for every column of the user's data.
    settings |= {(*CONTEXT, "full_batch"): True, (*CONTEXT, "dataset_strategy"): "full_batch"}
    for path, value in settings.items():
        at = found
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = value
    notes = [
        "The keys of this plan in MindFormers' training files (1.9.0 and 2.1.0, graph mode): put each in the place of its like,",
        "or have it done: symtensor mindformers train.yaml -o planned.yaml",
        f"That command reads files of {', '.join(CLASSES)}. Check that your MindFormers has a class for another network.",
        *_notes(planned),
    ]
    return {MINDFORMERS_FILE: "\n".join([*(f"# {note}" for note in notes), *lines(found)]) + "\n"}


def _notes(planned: Planned) -> list[str]:
    notes = []
    if planned.plan.loss in (MicroBatchLoss.COUNTED, MicroBatchLoss.MEAN_OF_MEANS):
        notes.append(f"In MindFormers' own training step the loss is the {MicroBatchLoss.MEAN_OF_MEANS.value}.")
    if planned.plan.settings.swap_optimizer:
        notes.append('optimizer.swap needs MS_DEV_RUNTIME_CONF="switch_inline:False" in the environment.')
    return notes


EXPORTER = Exporter(MINDFORMERS_FILE, _files)
