"""The process that has MindFormers: a request on standard input, an answer in the file that it names."""

import json
import os
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any


def main() -> int:
    """Answer one request. What MindFormers raises is an answer too."""
    request = json.loads(sys.stdin.read())
    answer = _answer(request)
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    started_s = time.monotonic()
    stand_in = _set_up()
    task = {"trace": _trace, "traces": _traces, "check": _check, "load": _load}[request["task"]]
    return task(request) | {
        "versions": _versions(stand_in),
        "time_s": time.monotonic() - started_s,
        "peak_rss_B": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _set_up() -> bool:
    """Import MindSpore and MindFormers with our functions in their places; whether hyper-parallel is our stand-in."""
    from ms_symtensor.bridge.pynative.stand_in.install import install as install_stand_in

    stand_in = install_stand_in()
    import mindspore

    from ms_symtensor.bridge.pynative import collectives, on_meta
    from ms_symtensor.bridge.pynative.stand_in.placements import note_distributed

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_device("CPU")
    collectives.install()
    import mindformers.pynative.trainer.trainer  # noqa: F401 - it takes references to what was installed

    on_meta.install()
    if stand_in:
        note_distributed()
    return stand_in


def _versions(stand_in: bool) -> dict[str, str]:
    from importlib.metadata import version

    return {
        "mindformers": version("mindformers"),
        "mindspore": version("mindspore"),
        "hyper_parallel": "stand-in" if stand_in else version("hyper-parallel"),
    }


def _trace(request: dict[str, Any]) -> dict[str, Any]:
    from ms_symtensor.bridge.pynative.model import stage_of, trainer_of

    config, devices = request["config"], request["device_num"]
    try:
        stages = int(trainer_of(config, devices).config.parallelism.pipeline_parallel)
        found = []
        for stage in request.get("stages") or range(stages):
            found.append(_traced_stage(stage_of(config, devices, stage), stage))
    except Exception as error:  # whatever MindFormers says is told as it said it
        return _refused(error)
    return {"stages": found}


def _traces(request: dict[str, Any]) -> dict[str, Any]:
    """Several files, each in a process of its own that has all imported: MindFormers remembers settings of the last network."""
    return {"found": [_forked(one, Path(f"{request['answer']}.{i}")) for i, one in enumerate(request["requests"])]}


def _forked(request: dict[str, Any], answer: Path) -> dict[str, Any]:
    process = os.fork()
    if process == 0:
        status = 1
        try:
            answer.write_text(json.dumps(_trace(request)), encoding="utf-8")
            status = 0
        finally:
            os._exit(status)
    os.waitpid(process, 0)
    if not answer.is_file():
        return {"refused": "the process that traced it died"}
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found


def _traced_stage(built: Any, stage: int) -> dict[str, Any]:
    from ms_symtensor.bridge.pynative.session import CURRENT
    from ms_symtensor.bridge.pynative.trace import trace

    CURRENT.calls.clear()
    kept = trace(built)
    calls = Counter((c.phase, c.kind, c.dtype, c.size_B, len(c.ranks), c.by) for c in CURRENT.calls)
    tensors = Counter(one for chunk in kept for one in chunk.saved)
    return {
        "stage": stage,
        "rank": CURRENT.rank,
        "layers": [[int(part.model.layer_start), int(part.model.layer_end)] for part in built.parts],
        "micro_batches": int(built.trainer.num_accumulation_steps),
        "calls": [[*call, count] for call, count in sorted(calls.items())],
        "parameters": _parameters(built.parts),
        "units": [_unit(unit) for unit in CURRENT.units],
        "kept_B": sum(chunk.activations_B() for chunk in kept),
        "kept_weights_B": sum(chunk.weights_B() for chunk in kept),
        "kept": [[t.made_by, t.dtype, list(t.shape), t.size_B, n] for t, n in tensors.most_common() if not t.weight],
    }


def _parameters(parts: list[Any]) -> dict[str, int]:
    from ms_symtensor.bridge.pynative.session import size_of

    found = [parameter for part in parts for parameter in part.trainable_params()]
    return {"count": len(found), "elements": sum(int(p.size) for p in found), "size_B": sum(map(size_of, found))}


def _unit(unit: Any) -> dict[str, Any]:
    from ms_symtensor.bridge.pynative.session import CURRENT, size_of

    def tensor_ranks(parameter: Any) -> int:
        """Ranks on which a gradient is a partial sum, because the parameter is whole on a mesh whose ranks see other tokens."""
        placed = CURRENT.placements.get(id(parameter))
        return placed[1].size() if placed and not any(p.is_shard() for p in placed[2]) else 1

    return {
        "name": unit.name.removeprefix("HSDP"),
        "shards": len(unit.shards),
        "replicas": len(unit.replica_ranks),
        "reshards": unit.reshards,
        "parameters": [
            [str(p.dtype).lower(), int(p.size), size_of(p), whole, tensor_ranks(p)]
            for p, whole in unit.parameters
            if p.requires_grad
        ],
    }


def _check(request: dict[str, Any]) -> dict[str, Any]:
    """What MindFormers' classes say to each of many degrees: an empty word, or its refusal."""
    from mindformers.pynative.config.config import ParallelismConfig
    from mindformers.pynative.distributed.parallel_dims import ParallelDims
    from mindformers.pynative.distributed.pipeline_parallel import PpLayerSetting

    from ms_symtensor.bridge.pynative.session import begin

    said = []
    for degrees in request["degrees"]:
        begin(0, request["device_num"])
        try:
            parallelism = ParallelismConfig.from_dict(degrees)
            world = request["device_num"]
            held = parallelism.tensor_parallel * parallelism.pipeline_parallel * parallelism.context_parallel
            parallelism.data_parallel = world // held
            ParallelDims.from_config(parallelism, world).build_mesh()
            if "num_layers" in request:
                PpLayerSetting(request["num_layers"], parallelism)
            said.append("")
        except Exception as error:  # its refusal, in its words
            said.append(f"{type(error).__name__}: {error}")
    return {"said": said}


def _load(request: dict[str, Any]) -> dict[str, Any]:
    """Whether a file loads in MindFormers' classes."""
    from mindformers.pynative.distributed.parallel_dims import ParallelDims
    from mindformers.pynative.distributed.pipeline_parallel import PpLayerSetting

    from ms_symtensor.bridge.pynative.model import trainer_of

    try:
        trainer = trainer_of(request["config"], request["device_num"])
        degrees = trainer.config.parallelism
        ParallelDims.from_config(degrees, request["device_num"]).build_mesh()
        layers = (
            PpLayerSetting(trainer.config.model.num_hidden_layers, degrees) if degrees.pipeline_parallel > 1 else None
        )
    except Exception as error:  # its refusal, in its words
        return _refused(error)
    ranges = [list(layers.get_layer_range(s)) for s in range(layers.num_virtual_stages)] if layers else []
    return {"layers": ranges, "micro_batches": int(trainer.num_accumulation_steps)}


def _refused(error: Exception) -> dict[str, Any]:
    return {"refused": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(main())
