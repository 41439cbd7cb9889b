"""Commands, read by vllm's own parser and classes as vllm-mindspore changes them.

Run by the Python of an environment with vllm 0.11.0.

python vllm_mindspore_judge.py VLLM_MINDSPORE < CASES.json

VLLM_MINDSPORE is the folder of the unpacked wheel. Its package imports mindspore. Its configuration, platform and arguments
are taken by themselves, on a chip that is no 310P, and put where `vllm_mindspore/__init__.py` puts them.
Prints for every case what was understood, or why not.
"""

import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import get_args

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_PLUGINS": "none", "VLLM_LOGGING_LEVEL": "ERROR"}

import vllm.platforms as platforms
from pydantic import ValidationError
from vllm.platforms.cpu import CpuPlatform

platforms._current_platform = CpuPlatform()

SOURCE = Path(sys.argv[1])
package, utils = types.ModuleType("vllm_mindspore"), types.ModuleType("vllm_mindspore.utils")
package.__path__, utils.is_310p = [str(SOURCE / "vllm_mindspore")], lambda: False
sys.modules |= {"vllm_mindspore": package, "vllm_mindspore.utils": utils}

import vllm.config  # noqa: E402
import vllm.engine.arg_utils  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.entrypoints.openai.cli_args import make_arg_parser  # noqa: E402
from vllm.model_executor.models import registry  # noqa: E402
from vllm.utils import FlexibleArgumentParser  # noqa: E402
from vllm_mindspore import config as changed  # noqa: E402
from vllm_mindspore.engine.arg_utils import _set_default_args  # noqa: E402
from vllm_mindspore.platforms.ascend import AscendPlatform  # noqa: E402

vllm.config.cache.CacheConfig, vllm.config.cache.CacheDType = changed._CacheConfig, changed._CacheDType
for module in (vllm.config, vllm.engine.arg_utils):
    module.SchedulerConfig = changed._SchedulerConfig
    module.get_attr_docs = changed.get_current_and_parent_class_attr_docs
vllm.engine.arg_utils.CacheDType, vllm.engine.arg_utils.CacheConfig = changed._CacheDType, changed._CacheConfig
EngineArgs._set_default_args = _set_default_args
vllm.config.ModelConfig._verify_quantization = changed._verify_quantization
vllm.config.VllmConfig.__post_init__ = changed.vllm_config_post_init
vllm.config.VllmConfig._get_quantization_config = staticmethod(changed.vllm_config_get_quantization_config)
vllm.config.CompilationConfig.model_post_init = changed.model_post_init
vllm.config._get_and_verify_dtype = changed._get_and_verify_dtype
AscendPlatform.simple_compile_backend = "eager"  # torch for CPUs knows no npu
platforms._current_platform = AscendPlatform()
# vllm looks at a network's class in another process, where nothing is changed
registry._LazyRegisteredModel.inspect_model_cls = lambda self: registry._ModelInfo.from_model_cls(self.load_model_cls())
for name, module in tuple(sys.modules.items()):
    if name.startswith("vllm") and "current_platform" in vars(module):
        module.current_platform = platforms._current_platform

CONNECTORS = (SOURCE / "vllm_mindspore/utils.py").read_text()
METHODS = (SOURCE / "vllm_mindspore/model_executor/layers/quantization/__init__.py").read_text()


class Parser(FlexibleArgumentParser):
    """A parser that raises what it would print."""

    def error(self, message):
        raise ValueError(message)


def understood(case):
    """What is made of the arguments of `case`. What is raised goes on."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(case["config"]))
        words = [folder if word == "$MODEL" else word for word in case["arguments"][2:]]
        chosen = make_arg_parser(Parser(prog="vllm-mindspore serve")).parse_args(words)
        chosen.model = chosen.model_tag
        # vllm's own reader of weights is asked for its methods; vllm-mindspore's are read from its file
        quantization, chosen.quantization = chosen.quantization, None
        chosen.swap_space = 0  # of this host's memory
        found = EngineArgs.from_cli_args(chosen).create_engine_config()
    transfer = found.kv_transfer_config
    if transfer is not None and f'"{transfer.kv_connector}"' not in CONNECTORS:
        raise ValueError(f"Unsupported connector type: {transfer.kv_connector}")
    if quantization is not None and f'"{quantization}"' not in METHODS:
        raise ValueError(f"Invalid quantization method: {quantization}.")
    assert found.cache_config.cache_dtype in get_args(changed._CacheDType)
    parallel, scheduler = found.parallel_config, found.scheduler_config
    return {
        "tp": parallel.tensor_parallel_size, "pp": parallel.pipeline_parallel_size, "dp": parallel.data_parallel_size,
        "experts": parallel.enable_expert_parallel, "requests": scheduler.max_num_seqs,
        "tokens": scheduler.max_num_batched_tokens, "length": found.model_config.max_model_len,
        "block": found.cache_config.block_size, "role": transfer and transfer.kv_role, "quantization": quantization, "copies": 0,
    }  # fmt: skip


def main():
    found = []
    for case in json.load(sys.stdin):
        try:
            found.append({"understood": understood(case)})
        except ValidationError as error:
            found.append({"refused": error.errors()[0]["msg"].removeprefix("Value error, ")})
        except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
            found.append({"refused": str(error)})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
