"""MindFormers' own code over training files: run by the Python of an environment that has it, by `mindformers_files`.

    python mindformers_judge.py EXPECTED.json

Each entry names a file, its devices, and what a plan says of it: samples of a step, blocks of every model chunk, and lists of
recomputation. MindFormerConfig reads the file, MindSpore takes its `parallel` section, the trainer checks its batch, LayerSetting
deals out its blocks. Exit code 1 if something raises or differs; a line for each that does.
"""

import json
import os
import sys

os.environ.setdefault("GLOG_v", "4")


def judged(entry):
    """What MindFormers makes of one file."""
    import mindspore as ms
    from mindformers import MindFormerConfig
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.parallel_core.training_graph.transformer import utils
    from mindformers.trainer.base_trainer import BaseTrainer

    ms.reset_auto_parallel_context()
    config = MindFormerConfig(entry["file"])
    parallel = dict(config.parallel)
    strategy = parallel.pop("dataset_strategy", "full_batch")
    stages = config.parallel_config.pipeline_stage
    ms.set_auto_parallel_context(device_num=entry["devices"], global_rank=0, pipeline_stages=stages)
    keys = {
        key: value for key, value in parallel.items() if key not in ("auto_pipeline", "full_batch", "pipeline_stages")
    }
    keys["parallel_mode"] = {0: "data_parallel", 1: "semi_auto_parallel"}.get(
        keys["parallel_mode"], keys["parallel_mode"]
    )
    ms.set_auto_parallel_context(**{key: plain(value) for key, value in keys.items()})
    strategy = plain(strategy)
    BaseTrainer._set_full_batch_with_strategy(config, strategy)
    build_parallel_config(config)
    trainer = BaseTrainer.__new__(BaseTrainer)
    trainer.config = config
    trainer._check_grad_accumulation_steps()
    trainer._check_global_batch_size_for_auto_parallel()
    model = config.model.model_config
    utils.is_legacy_model = lambda: bool(config.use_legacy)  # what the trainer's context would say
    own = config.parallel_config if config.use_legacy else shown(config)
    offset, chunks = plain(model.offset or 0), model.pp_interleave_num or 1
    setting = utils.LayerSetting(entry["num_layers"], offset, own, pp_interleave_num=chunks)
    held = setting.layer_list.tolist()
    return {
        "global_batch_size": config.runner_config.global_batch_size,
        "held": held,
        "whole": [[min(*pair) for pair in zip(*rows)] for rows in zip(setting.layer_recompute, held)],
        "parts": {pattern: [list(map(int, row)) for row in rows] for pattern, rows in setting.select_recompute.items()},
    }


def shown(config):
    """`parallel_config` and `recompute_config` as LayerSetting reads them of mcore's configuration."""

    class Shown:
        pass

    found = Shown()
    found.gradient_aggregation_group = config.parallel_config.gradient_aggregation_group
    found.pipeline_model_parallel_size = config.parallel_config.pipeline_stage
    found.cpu_offloading, found.cpu_offloading_num_layers, found.op_swap = False, None, None
    recompute = config.recompute_config
    recompute = recompute.to_dict() if hasattr(recompute, "to_dict") else dict(recompute)
    for key in (
        "recompute", "select_recompute", "parallel_optimizer_comm_recompute", "select_comm_recompute", "mp_comm_recompute",
        "recompute_slice_activation", "select_recompute_exclude", "select_comm_recompute_exclude",
    ):  # fmt: skip
        setattr(found, key, plain(recompute.get(key, key == "mp_comm_recompute")))
    return found


def plain(value):
    """Data without MindFormers' own kinds of it."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def main():
    import mindformers

    wrong = 0
    with open(sys.argv[1], encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        try:
            found = judged(entry)
            differ = [key for key, value in entry["plan"].items() if found[key] != value]
            words = "; ".join(f"{key} {found[key]} is not {entry['plan'][key]}" for key in differ)
        except Exception as error:  # whatever MindFormers raises is the finding
            words = f"{type(error).__name__}: {error}"
        if words:
            wrong += 1
            print(f"{entry['file']}: {words}", flush=True)
    print(f"MindFormers {mindformers.__version__}: {len(entries) - wrong} of {len(entries)} files as planned")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
