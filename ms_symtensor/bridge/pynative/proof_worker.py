"""One process of a proof: the network whole and by its degrees, loss and gradients side by side."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-5
LEAST_SCALE = 0.01
"""A gradient's error is relative to its own largest value, or to this share of the largest of all."""


def main() -> int:
    """Answer the request in the file that the only argument names."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from ms_symtensor.bridge.pynative.stand_in.install import install as install_stand_in

    stand_in = install_stand_in()
    from ms_symtensor.bridge.pynative import collectives, definitions, executed, session
    from ms_symtensor.bridge.pynative.stand_in.placements import note_distributed

    rank, ranks = executed.join()
    session.begin(rank, ranks, real=True)
    definitions.install()
    collectives.install()
    collectives.use(executed.Processes())
    import mindformers.pynative.trainer.trainer  # noqa: F401 - it takes references to what was installed

    definitions.install_in_mindformers()
    if stand_in:
        note_distributed()
    answer = prove(request["config"], ranks, request.get("left_out", ""))
    unfinished = Path(f"{request['answer']}.{rank}.part")
    unfinished.write_text(json.dumps(answer), encoding="utf-8")
    unfinished.rename(f"{request['answer']}.{rank}")
    return 0


def prove(config: dict[str, Any], ranks: int, left_out: str) -> dict[str, Any]:
    """Errors of this rank's loss and gradients; `left_out` names a sum that is not made, to see that it is missed."""
    from ms_symtensor.bridge.pynative.executed import Processes
    from ms_symtensor.bridge.pynative.model import trainer_of
    from ms_symtensor.bridge.pynative.session import CURRENT, begin

    trainer = trainer_of(config, ranks)
    begin(_rank(), ranks, real=True)
    degrees, model = trainer.config.parallelism, trainer.config.model
    samples = np.random.RandomState(1).randint(0, model.vocab_size, (2, degrees.data_parallel, model.seq_length))
    whole = _seeded(trainer._create_model(None, model))
    loss, gradients = _gradients(whole, samples)
    expected = {p.name: g.asnumpy() for p, g in zip(whole.trainable_params(), gradients, strict=True)}
    cut = _seeded(trainer._create_model(None, model))
    trainer._apply_parallelism(cut, degrees)
    place = trainer.parallel_dims.get_mesh("batch").get_local_rank() if degrees.data_parallel > 1 else 0
    part, found = _gradients(cut, samples[:, place : place + 1])
    total = float(Processes().all_reduce(part.reshape(1), "sum", None).asnumpy()[0]) / ranks
    rows = _compared(cut, found, expected, 1.0 / ranks, left_out)
    return {
        "loss_rel_error": abs(total - float(loss.asnumpy())) / abs(float(loss.asnumpy())),
        "parameters": rows,
        "calls": len(CURRENT.calls),
    }


def _rank() -> int:
    from mindspore.communication import get_rank

    return int(get_rank())


def _seeded(net: Any) -> Any:
    """Numbers that depend on a parameter's place alone, alike in every process."""
    from mindspore import Tensor

    draw = np.random.RandomState(0)
    for name, parameter in net.parameters_and_names():
        if "float" in str(parameter.dtype).lower() and parameter.shape:
            values = draw.standard_normal(parameter.shape).astype(np.float32) * 0.2
            parameter.set_data(Tensor(np.abs(values) + 0.5 if "norm" in name else values, parameter.dtype))
    net.set_train(True)
    return net


def _gradients(net: Any, samples: Any) -> Any:
    """Loss, mean over samples, and gradients of its sum as the trainer scales them before the reductions."""
    import mindspore
    from mindspore import Tensor, mint

    ids, labels = (Tensor(one, mindspore.int32) for one in samples)
    count, length = samples.shape[1:]
    positions = Tensor(np.tile(np.arange(length), (count, 1)), mindspore.int32)
    mask = Tensor(np.zeros((1, 1, length, length), np.uint8))

    def objective() -> Any:
        return net(
            input_ids=ids,
            position_ids=positions,
            labels=labels,
            loss_mask=mint.ones((count, length), dtype=mindspore.float32),
            attention_mask=mask,
        )[0].sum()

    return mindspore.value_and_grad(objective, None, net.trainable_params())()


def _compared(
    net: Any, found: Any, expected: dict[str, Any], scale: float, left_out: str
) -> list[tuple[str, float, str]]:
    """Per parameter: its name, its error once it is summed, and which sum it lacks if it is wrong."""
    largest = max(np.abs(one).max() for one in expected.values())
    owners = _owners()
    rows = []
    for parameter, gradient in zip(net.trainable_params(), found, strict=True):
        groups = owners[id(parameter)]
        summed = gradient * scale
        for name, ranks in groups.items():
            summed = summed if name == left_out else _sum(summed, ranks)
        reference = _part(parameter, expected[parameter.name])
        bound = max(np.abs(reference).max(), LEAST_SCALE * largest)
        error = float(np.abs(summed.asnumpy() - reference).max() / bound)
        lacks = ""
        for name, ranks in groups.items():  # every rank takes part, right or wrong
            repeated = _sum(summed, ranks)
            if (
                error > TOLERANCE
                and len(ranks) > 1
                and np.abs(repeated.asnumpy() - reference).max() / bound <= TOLERANCE
            ):
                lacks = name
        rows.append((parameter.name, error, lacks))
    return rows


def _sum(tensor: Any, ranks: tuple[int, ...]) -> Any:
    from ms_symtensor.bridge.pynative.executed import summed

    return summed(tensor, ranks)


def _owners() -> dict[int, dict[str, tuple[int, ...]]]:
    """For each parameter the ranks of its sums: over shards, replicas, and tensor parallelism where it is whole on all."""
    from ms_symtensor.bridge.pynative.session import CURRENT

    found = {}
    for unit in CURRENT.units:
        for parameter, _ in unit.parameters:
            groups = {"shards": unit.shards, "replicas": unit.replica_ranks}
            placed = CURRENT.placements.get(id(parameter))
            if placed and not any(p.is_shard() for p in placed[2]):
                groups["tensor parallelism"] = tuple(placed[1].rank_list)
            found[id(parameter)] = groups
    return found


def _part(parameter: Any, reference: Any) -> Any:
    """What this rank has of a whole gradient."""
    from mindspore import Tensor

    from ms_symtensor.bridge.pynative.session import CURRENT
    from ms_symtensor.bridge.pynative.stand_in.placements import local_part

    placed = CURRENT.placements.get(id(parameter))
    return local_part(Tensor(reference), placed[1], placed[2]).asnumpy() if placed else reference


if __name__ == "__main__":
    sys.exit(main())
