"""Commands, read by vllm's own parser and classes, and by vllm-ascend's: run by the Python of an environment with vllm.

python vllm_judge.py VLLM_ASCEND < CASES.json

VLLM_ASCEND is the source folder of vllm-ascend, which imports torch_npu in most files: its options are checked by the two classes
and the one method that need none. vllm takes its own CPU for the platform. Prints for every case what was understood, or why not.
"""

import ast
import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_PLUGINS": "none", "VLLM_LOGGING_LEVEL": "ERROR"}

import vllm.platforms as platforms
from vllm.platforms.cpu import CpuPlatform

platforms._current_platform = CpuPlatform()

from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.entrypoints.openai.cli_args import make_arg_parser  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402

BLOCKS = "vllm_ascend/patch/platform/patch_mamba_config.py"
CONNECTOR = "vllm_ascend/distributed/kv_transfer/kv_p2p/mooncake_connector.py"
SIZES = "_get_prefill_decode_size"


class Parser(FlexibleArgumentParser):
    """A parser that raises what it would print."""

    def error(self, message):
        raise ValueError(message)


def sizes_of(source):
    """The method of the connector that reads the sizes of prefill and decode."""
    tree = ast.parse((source / CONNECTOR).read_text())
    (method,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == SIZES)
    names = {"Any": object, "VllmConfig": object}
    exec(compile(ast.Module([method], []), CONNECTOR, "exec"), names)
    return names[SIZES]


def understood(case, ascend, sizes):
    """What vllm and vllm-ascend make of the arguments of `case`. What they raise goes on."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(case["config"]))
        words = [folder if word == "$MODEL" else word for word in case["arguments"][2:]]
        chosen = make_arg_parser(Parser(prog="vllm serve")).parse_args(words)
        chosen.model = chosen.model_tag
        # vllm-ascend registers its quantization and its connector where torch_npu is.
        quantization, chosen.quantization = chosen.quantization, None
        transfer, chosen.kv_transfer_config = chosen.kv_transfer_config, None
        config = EngineArgs.from_cli_args(chosen).create_engine_config()
    os.environ.pop("DYNAMIC_EPLB", None)
    os.environ |= dict(pair.split("=") for pair in case["environment"].split())
    more = config.additional_config or {}
    ascend.FinegrainedTPConfig(more.get("finegrained_tp_config", {}), config)
    experts = ascend.EplbConfig(more.get("eplb_config", {}))
    if transfer is not None:
        sizes(SimpleNamespace(), SimpleNamespace(kv_transfer_config=transfer))
    parallel, block = config.parallel_config, config.cache_config.block_size
    return {
        "tp": parallel.tensor_parallel_size, "pp": parallel.pipeline_parallel_size, "dp": parallel.data_parallel_size,
        "experts": parallel.enable_expert_parallel, "requests": chosen.max_num_seqs, "tokens": chosen.max_num_batched_tokens,
        "length": config.model_config.max_model_len, "block": block, "role": transfer and transfer.kv_role,
        "quantization": quantization, "copies": experts.num_redundant_experts,
    }  # fmt: skip


def main():
    source = Path(sys.argv[1])
    sys.path.append(str(source))
    from vllm_ascend import ascend_config as ascend

    exec(compile((source / BLOCKS).read_text(), BLOCKS, "exec"), {})  # blocks beside states: it puts itself into vllm

    sizes, found = sizes_of(source), []
    for case in json.load(sys.stdin):
        try:
            found.append({"understood": understood(case, ascend, sizes)})
        except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
            found.append({"refused": str(error)})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
