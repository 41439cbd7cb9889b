"""What MindFormers infers with: a `predict_*.yaml` for each kind of instance, in the form of its own `configs/*/predict_*.yaml`.

Read off MindFormers 1.9.0 and 2.1.0: `parallel_core/inference/parallel_state.py` takes tp, ep, pp and dp of one world, in which
ep divides dp times tp and every expert is cut over what is left; `transformer_config.py` has the cache's blocks.
"""

from model_zoo.config import TransformerConfig
from ms_symtensor.serving.deployment import Deployment, Instance
from ms_symtensor.serving.memory import BLOCK_TOKENS
from ms_symtensor.serving.request import Request
from ms_symtensor.targets.plain_yaml import lines

_HEAD = """# {phase} on {devices} devices, {count} such instances. Predicted by ms_symtensor, not measured on NPUs.
# pretrained_model_dir: a folder of Hugging Face's files; MindFormers reads dims and weights there.
"""
_GIB = 1 << 30


def predict_files(request: Request, best: Deployment) -> tuple[dict[str, str], str]:
    """The files by name, and why there are none (or some are left out); empty if all are there."""
    if reason := _why_not(request):
        return {}, reason
    files, left = {}, ""
    for one in best.instances:
        if one.strategy.ffn_tp != one.strategy.tp:
            left = f"{one.phase}: MindFormers cuts a dense feed-forward tp ways, and this one is cut {one.strategy.ffn_tp} ways"
            continue
        files[f"predict_{one.phase}.yaml"] = _file(request, one)
    return files, left


def _why_not(request: Request) -> str:
    if not _model_name(request.config):
        return f"MindFormers infers Qwen3 and DeepSeek-V3 with such files, and {request.config.name} is neither"
    if request.weights != "bfloat16" or request.cache != "bfloat16":
        return "weights and cache of fewer bits come of a checkpoint that says so, and of no key of these files"
    return ""


def _model_name(config: TransformerConfig) -> str:
    """What MindFormers calls the network; empty if it has none."""
    if config.position != "rotary" or config.norm != "rms_norm" or config.activation != "swiglu":
        return ""
    if config.indexer is not None:
        return ""
    if config.latent_attention is not None:
        return "deepseek_v3" if config.experts is not None and config.experts.scoring == "sigmoid" else ""
    if config.qk_norm != "head" or config.kinds:
        return ""
    return "qwen3" if config.experts is None else "qwen3_moe"


def _file(request: Request, one: Instance) -> str:
    cut = one.strategy
    data = {
        "seed": 0,
        "output_dir": "./output",
        "load_checkpoint": "",
        "use_parallel": cut.device_num > 1,
        "run_mode": "predict",
        "use_legacy": False,
        "load_ckpt_format": "safetensors",
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": _model_name(request.config)},
        "parallel_config": {
            "data_parallel": cut.dp,
            "model_parallel": cut.tp,
            "pipeline_stage": cut.pp,
            "expert_parallel": cut.ep,
        },
        "pretrained_model_dir": "/path/hf_dir",
        "model": {
            "model_config": {
                "compute_dtype": "bfloat16",
                "layernorm_compute_dtype": "float32",
                "softmax_compute_dtype": "float32",
                "rotary_dtype": "bfloat16",
                "params_dtype": "bfloat16",
                "block_size": BLOCK_TOKENS,
                "num_blocks": max(1, one.cache_tokens // BLOCK_TOKENS),
            }
        },
        "context": {"mode": 0, "max_device_memory": f"{request.limit_B // _GIB}GB"},
        "parallel": {"parallel_mode": "MANUAL_PARALLEL", "enable_alltoall": False},
    }
    return _HEAD.format(phase=one.phase, devices=cut.device_num, count=one.count) + "\n".join(lines(data)) + "\n"
