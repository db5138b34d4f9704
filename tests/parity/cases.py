"""One tiny model of transformers per family and head, with weights drawn so that every part
matters.
"""

import atexit
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import weft
from weft.families import family
from weft.interop.huggingface import verify
from weft.interop.huggingface.convert import ForeignTensors
from weft.interop.loading import fill_model as fill_model
from weft.interop.stored_tensors import read_tensors

FP32 = 1e-5
FP64 = 1e-9
# where fp64 cannot agree to 1e-9, to what it agrees, and why
ROUGH = {
    "bloom": (1e-8, "transformers writes √(2/π) in BLOOM's GELU with eight digits"),
    "marian": (1e-6, "transformers reads its sinusoids from an fp32 table"),
    "pegasus": (2e-6, "as marian"),
}

hf.utils.logging.set_verbosity_error()
hf.utils.logging.disable_progress_bar()


@dataclass(frozen=True, eq=False)
class Case:
    """What transformers is asked to build, and how its weights are drawn."""

    family: str
    kind: str  # the class in transformers
    note: str = ""
    config: str = ""  # and that of its config
    fields: Mapping[str, Any] = None  # type: ignore[assignment]
    main: bool = False  # the one whose fields are flipped
    gain: float = 1.5  # matrices are normal at gain / √inputs
    norm: float = 1.0  # the middle of the norms' weights
    scale: Mapping[str, float] = None  # type: ignore[assignment]  # the first pattern in a name: times this; 0 leaves it alone
    change: Callable[[Any], None] = lambda model: None

    @property
    def name(self) -> str:
        return f"{self.family}-{self.kind}" + (f"-{self.note}" if self.note else "")


CASES: dict[str, Case] = {}


def case(
    family: str,
    kind: str,
    note: str = "",
    *,
    config: str,
    scale: Mapping[str, float] | None = None,
    main: bool = False,
    gain: float = 1.5,
    norm: float = 1.0,
    change: Callable[[Any], None] = lambda model: None,
    **fields: Any,
) -> None:
    new = Case(family, kind, note, config, fields, main, gain, norm, scale or {}, change)
    assert new.name not in CASES
    CASES[new.name] = new


# Encoders. eps is large, so that another shows.

TEXT = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 67,
}
BERT = TEXT | {"config": "BertConfig", "max_position_embeddings": 16, "layer_norm_eps": 1e-3}
case("bert", "BertForMaskedLM", main=True, **BERT)
case("bert", "BertForPreTraining", **BERT)
case("bert", "BertForMaskedLM", "relu", **BERT, hidden_act="relu")
for head in (
    "Model",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
):
    case(
        "bert",
        f"Bert{head}",
        **BERT,
        **({"num_labels": 3} if head.endswith("Classification") else {}),
    )
ROBERTA = BERT | {"config": "RobertaConfig", "type_vocab_size": 1, "pad_token_id": 1}
case("roberta", "RobertaForMaskedLM", main=True, **ROBERTA)
case("roberta", "RobertaForMaskedLM", "pad-first", **ROBERTA | {"pad_token_id": 0})
for head in (
    "Model",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
):
    case("roberta", f"Roberta{head}", **ROBERTA)
ELECTRA = BERT | {"config": "ElectraConfig", "embedding_size": 16, "gain": 1.2}
case("electra", "ElectraForPreTraining", main=True, **ELECTRA)
case("electra", "ElectraForMaskedLM", **ELECTRA)
case("electra", "ElectraForMaskedLM", "wide", **ELECTRA | {"embedding_size": 32})
for head in (
    "Model",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
):
    case("electra", f"Electra{head}", **ELECTRA)
MODERNBERT = TEXT | {
    "config": "ModernBertConfig",
    "num_hidden_layers": 4,
    "local_attention": 4,
    "pad_token_id": 0,
    "norm_eps": 1e-3,
    "gain": 1.2,
    **dict.fromkeys(("eos_token_id", "bos_token_id", "cls_token_id", "sep_token_id"), 1),
}
THETAS = {
    kind: {"rope_type": "default", "rope_theta": theta}
    for kind, theta in (("full_attention", 900.0), ("sliding_attention", 30.0))
}
case("modernbert", "ModernBertForMaskedLM", main=True, **MODERNBERT, rope_parameters=THETAS)
case(
    "modernbert",
    "ModernBertForMaskedLM",
    "every-other",
    **MODERNBERT,
    layer_types=["full_attention", "sliding_attention"] * 2,
)
for head in ("Model", "ForSequenceClassification", "ForTokenClassification"):
    case("modernbert", f"ModernBert{head}", **MODERNBERT)

# Decoders

GPT = {
    "n_layer": 2,
    "n_embd": 32,
    "n_head": 4,
    "vocab_size": 67,
    "n_positions": 16,
    "layer_norm_epsilon": 1e-3,
}
case("gpt", "OpenAIGPTLMHeadModel", config="OpenAIGPTConfig", main=True, **GPT)
GPT2 = GPT | {"config": "GPT2Config", "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
case("gpt2", "GPT2LMHeadModel", main=True, **GPT2)
case("gpt2", "GPT2LMHeadModel", "free", **GPT2, tie_word_embeddings=False, n_inner=48)
case("gpt2", "GPT2ForSequenceClassification", **GPT2, num_labels=3)
case("gpt2", "GPT2Model", **GPT2)
case("gpt3", "GPT2LMHeadModel", main=True, **GPT2 | {"n_layer": 3, "n_positions": 24})
BLOOM = {
    "config": "BloomConfig",
    "n_layer": 2,
    "hidden_size": 32,
    "n_head": 4,
    "vocab_size": 67,
    "layer_norm_epsilon": 1e-3,
    "pad_token_id": 0,
}
case("bloom", "BloomForCausalLM", main=True, **BLOOM)
case("bloom", "BloomForCausalLM", "six-heads", **BLOOM | {"n_head": 6, "hidden_size": 48})
case("bloom", "BloomForSequenceClassification", **BLOOM, num_labels=3)
ROTARY = {"rope_type": "default", "rope_theta": 900.0}
LLAMA = TEXT | {
    "config": "LlamaConfig",
    "num_key_value_heads": 2,
    "head_dim": 12,
    "rms_norm_eps": 1e-3,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
case("llama", "LlamaForCausalLM", main=True, **LLAMA, rope_parameters=LLAMA3)
case("llama", "LlamaForCausalLM", "plain-rotary", **LLAMA)
case("llama", "LlamaForCausalLM", "tied", **LLAMA, tie_word_embeddings=True)
case("llama", "LlamaForCausalLM", "biased", **LLAMA, attention_bias=True, mlp_bias=True)
case(
    "llama", "LlamaForCausalLM", "one-group", **LLAMA | {"num_key_value_heads": 1, "head_dim": None}
)
case("llama", "LlamaForSequenceClassification", **LLAMA, num_labels=3)
case("llama", "LlamaModel", **LLAMA)
MISTRAL = LLAMA | {"config": "MistralConfig"}
case(
    "mistral", "MistralForCausalLM", main=True, **MISTRAL, sliding_window=4, rope_parameters=ROTARY
)
case("mistral", "MistralForCausalLM", "no-window", **MISTRAL, sliding_window=None)
MIXTRAL = LLAMA | {"config": "MixtralConfig", "num_local_experts": 4}
case("mixtral", "MixtralForCausalLM", main=True, **MIXTRAL, rope_parameters=ROTARY)
case(
    "mixtral",
    "MixtralForCausalLM",
    "three-of-five",
    **MIXTRAL | {"num_local_experts": 5, "sliding_window": 5},
    num_experts_per_tok=3,
)
NEOX = TEXT | {"config": "GPTNeoXConfig", "layer_norm_eps": 1e-3, "num_attention_heads": 2}
case(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    main=True,
    **NEOX,
    rope_parameters=ROTARY | {"partial_rotary_factor": 0.25},
)
case("gpt_neox", "GPTNeoXForCausalLM", "in-turn", **NEOX, use_parallel_residual=False)
case(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    "half-rotary-no-bias",
    **NEOX,
    attention_bias=False,
    rope_parameters=ROTARY | {"partial_rotary_factor": 0.5},
)
STARCODER = TEXT | {
    "config": "Starcoder2Config",
    "num_key_value_heads": 2,
    "norm_epsilon": 1e-3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
case(
    "starcoder2",
    "Starcoder2ForCausalLM",
    main=True,
    **STARCODER,
    sliding_window=4,
    rope_parameters=ROTARY,
)
case(
    "starcoder2",
    "Starcoder2ForCausalLM",
    "no-bias",
    **STARCODER | {"num_key_value_heads": 4},
    use_bias=False,
    hidden_act="relu",
)
case("starcoder2", "Starcoder2ForSequenceClassification", **STARCODER, num_labels=3)
case("starcoder2", "Starcoder2Model", **STARCODER)
GEMMA = TEXT | {
    "config": "Gemma2Config",
    "num_key_value_heads": 2,
    "head_dim": 12,
    "sliding_window": 4,
    "query_pre_attn_scalar": 7,
    "rms_norm_eps": 1e-3,
    "norm": 0.0,
}
CAPS = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5}  # low, so that both show
case("gemma2", "Gemma2ForCausalLM", main=True, **GEMMA, **CAPS, rope_parameters=ROTARY)
case("gemma2", "Gemma2ForCausalLM", "published-caps", **GEMMA)
case("gemma2", "Gemma2ForCausalLM", "no-caps", **GEMMA, **dict.fromkeys(CAPS))
case(
    "gemma2",
    "Gemma2ForCausalLM",
    "whole-first",
    **GEMMA,
    **CAPS,
    layer_types=["full_attention", "sliding_attention"],
)
case("gemma2", "Gemma2ForSequenceClassification", **GEMMA, **CAPS, num_labels=3, pad_token_id=0)
QWEN3 = LLAMA | {"config": "Qwen3Config", "head_dim": 10}
case("qwen3", "Qwen3ForCausalLM", main=True, **QWEN3, rope_parameters=ROTARY)
case(
    "qwen3",
    "Qwen3ForCausalLM",
    "tied-biased",
    **QWEN3,
    tie_word_embeddings=True,
    attention_bias=True,
)
case("qwen3", "Qwen3Model", **QWEN3)
case("qwen3", "Qwen3ForSequenceClassification", **QWEN3, num_labels=3)
OLMO2 = {name: field for name, field in LLAMA.items() if name != "head_dim"} | {
    "config": "Olmo2Config",
    "eos_token_id": 1,
}
case("olmo2", "Olmo2ForCausalLM", main=True, **OLMO2, rope_parameters=ROTARY)
case("olmo2", "Olmo2ForCausalLM", "one-group", **OLMO2 | {"num_key_value_heads": 1})
case("olmo2", "Olmo2Model", **OLMO2)

# Encoder-decoders


def free_head(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))


T5 = {
    "config": "T5Config",
    "num_layers": 2,
    "d_model": 32,
    "d_kv": 6,
    "num_heads": 4,
    "d_ff": 48,
    "vocab_size": 67,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 9,
    "layer_norm_epsilon": 1e-3,
    "gain": 1.0,
}
GATED = T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
case("t5", "T5ForConditionalGeneration", main=True, **T5)
case("t5", "T5Model", **T5)
case("t5", "T5ForConditionalGeneration", "silu", **T5, feed_forward_proj="gated-silu")
case("t5_v1_1", "T5ForConditionalGeneration", "free", main=True, change=free_head, **GATED)
case("t5_v1_1", "T5ForConditionalGeneration", "tied", **GATED)
case(
    "mt5",
    "MT5ForConditionalGeneration",
    main=True,
    change=free_head,
    **GATED | {"config": "MT5Config"},
)
case("mt5", "MT5ForConditionalGeneration", "tied", **GATED | {"config": "MT5Config"})
case(
    "byt5",
    "T5ForConditionalGeneration",
    main=True,
    change=free_head,
    **GATED | {"num_layers": 3},
    num_decoder_layers=1,
)
PAIR = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "d_model": 32,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
# Where eps is always 1e-5, the vectors between the blocks are small so that it shows; the maps that
# need them large enlarge them.
SMALL = {
    r"decoder\.(layers\.1\.final_layer_norm|(layer)?norm)": 1.0,
    r"norm|fc2|linear2|(v|o|out)_proj\.bias": 0.05,
    r"[qk]_proj\.weight|fc1\.weight|linear1\.weight": 15.0,
    r"in_proj_weight": 5.0,
    r"in_proj_bias|out_proj|shared|embed|tokens": 0.2,
}
BART = PAIR | {
    "config": "BartConfig",
    "vocab_size": 67,
    "max_position_embeddings": 16,
    "pad_token_id": 1,
    "scale": SMALL,
}
case("bart", "BartForConditionalGeneration", main=True, **BART)
case(
    "bart",
    "BartForConditionalGeneration",
    "scaled-shallow",
    **BART | {"decoder_layers": 1},
    scale_embedding=True,
)
case("bart", "BartModel", **BART)
MARIAN = BART | {
    "config": "MarianConfig",
    "decoder_start_token_id": 1,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "scale_embedding": True,
    "activation_function": "swish",
    "scale": {"embed_positions": 0.0} | SMALL,
}
case("marian", "MarianMTModel", main=True, **MARIAN)
case("marian", "MarianModel", **MARIAN)
PEGASUS = MARIAN | {
    "config": "PegasusConfig",
    "activation_function": "relu",
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
    # its sinusoids come before the first norm and cannot be small: what the norms lead to is large
    "scale": {
        "embed_positions": 0.0,
        r"decoder\.layer_norm\.weight": 1.7,
        r"[qk]_proj\.weight": 2.5,
        "out_proj|fc2": 0.3,
        "shared": 0.15,
    },
}
case("pegasus", "PegasusForConditionalGeneration", main=True, **PEGASUS)
case("pegasus", "PegasusModel", **PEGASUS)

# Images

VIT = {
    "config": "ViTConfig",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
    "layer_norm_eps": 1e-3,
}
case("vit", "ViTForImageClassification", main=True, **VIT, num_labels=5)
case("vit", "ViTModel", **VIT)
case(
    "vit", "ViTForImageClassification", "no-bias-one-channel", **VIT, qkv_bias=False, num_channels=1
)
DEIT = VIT | {"config": "DeiTConfig"}
case("deit", "DeiTForImageClassificationWithTeacher", main=True, **DEIT, num_labels=5)
case("deit", "DeiTForImageClassification", **DEIT, num_labels=5)
case("deit", "DeiTModel", **DEIT)
MAE = VIT | {
    "config": "ViTMAEConfig",
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 2,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 24,
}
case("mae", "ViTMAEForPreTraining", main=True, **MAE)
DINOV2 = {name: field for name, field in VIT.items() if name != "intermediate_size"} | {
    "config": "Dinov2Config",
    "mlp_ratio": 2,
}
case("dinov2", "Dinov2Model", main=True, **DINOV2)
case("dinov2", "Dinov2Model", "no-bias-one-channel", **DINOV2, qkv_bias=False, num_channels=1)
SWIN = {
    "config": "SwinConfig",
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [2, 2, 2],
    "num_heads": [2, 4, 4],
    "window_size": 4,
    "num_labels": 5,
    "layer_norm_eps": 1e-3,
    "scale": {r"embeddings|o_proj|fc2|reduction": 0.05},
}
# grids of 18, 9 and 5 cells
case("swin", "SwinForImageClassification", "uneven", main=True, **SWIN, image_size=36)
# 16, 8 and 4: the last is one window
case("swin", "SwinForImageClassification", "even", **SWIN, image_size=32)
case("swin", "SwinModel", "no-bias", **SWIN, image_size=36, qkv_bias=False)
DETR = PAIR | {
    "config": "DetrConfig",
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "num_queries": 7,
    "num_labels": 5,
    "gain": 1.2,
    "scale": {"backbone": 1.0} | SMALL,
}


def resnet() -> hf.ResNetConfig:
    return hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2], out_features=["stage2"]
    )


case("detr", "DetrForObjectDetection", "sine", main=True, **DETR, backbone_config=resnet())
case(
    "detr",
    "DetrForObjectDetection",
    "learned",
    **DETR,
    backbone_config=resnet(),
    position_embedding_type="learned",
)
DAB = DETR | {
    "config": "DabDetrConfig",
    "hidden_size": 32,
    "scale": {
        "backbone": 1.0,
        "activation_fn": 0.0,
        "refpoint": 1.0,
        r"content_proj\.weight": 15.0,
        r"pos_proj\.weight": 3.0,
        r"(output|value)_proj\.bias": 0.05,
        r"output_proj": 0.2,
    }
    | SMALL,
}
for key in ("d_model", "backbone"):
    DAB.pop(key, None)
case("dab_detr", "DabDetrForObjectDetection", main=True, **DAB, backbone_config=resnet())
case(
    "dab_detr",
    "DabDetrForObjectDetection",
    "relu",
    **DAB,
    backbone_config=resnet(),
    activation_function="relu",
    temperature_height=50,
    temperature_width=50,
)

# The Transformer of 2017 has no published file: torch.nn.Transformer beside a table of tokens,
# under the names that `run_theirs` gives


class Original(nn.Module):
    def __init__(self, c: Case) -> None:
        super().__init__()
        sizes = {k: v for k, v in c.fields.items() if k != "vocabulary"}
        self.tokens = nn.Embedding(c.fields["vocabulary"], c.fields["d_model"])
        self.body = nn.Transformer(**sizes, batch_first=True)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor, **_: Any
    ) -> dict[str, Tensor]:
        future = torch.ones(2 * decoder_input_ids.shape[1:], dtype=torch.bool).triu(1)
        memory = self.body.encoder(self.place(input_ids), src_key_padding_mask=attention_mask == 0)
        x = self.body.decoder(
            self.place(decoder_input_ids),
            memory,
            tgt_mask=future,
            memory_key_padding_mask=attention_mask == 0,
        )
        return {
            "encoder_last_hidden_state": memory,
            "last_hidden_state": x,
            "logits": x @ self.tokens.weight.T,
        }

    def place(self, ids: Tensor) -> Tensor:
        """Rows times √width, plus the sines and cosines of section 3.5."""
        x = self.tokens(ids)
        width = self.tokens.embedding_dim
        wave = [
            [
                f(at / 10_000 ** (2 * i / width))
                for i in range(width // 2)
                for f in (math.sin, math.cos)
            ]
            for at in range(ids.shape[1])
        ]
        return x * width**0.5 + torch.tensor(wave, dtype=x.dtype)

    def foreign(self) -> ForeignTensors:
        state = {name.removeprefix("body."): t for name, t in self.state_dict().items()}
        return ForeignTensors(set(state), state.__getitem__)


ORIGINAL = Case(
    "transformer",
    "Transformer",
    fields={
        "d_model": 32,
        "nhead": 4,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "dim_feedforward": 48,
        "vocabulary": 67,
    },
    scale=SMALL,
)
MAIN = {"transformer": ORIGINAL} | {c.family: c for c in CASES.values() if c.main}


# Both sides, built once a session


@cache
def shelf() -> Path:
    """A folder for the session."""
    made = Path(tempfile.mkdtemp(prefix="weft-parity-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def build(c: Case) -> Any:
    torch.manual_seed(0)
    # torch's fused encoder layer has no fp64 and pads with zeros
    torch.backends.mha.set_fastpath_enabled(False)
    model = Original(c) if c is ORIGINAL else getattr(hf, c.kind)(getattr(hf, c.config)(**c.fields))
    c.change(model)
    draw(model, c)
    return model.eval()


def draw(model: nn.Module, c: Case) -> None:
    """Every stored number anew: matrices by their inputs, norms around their middle in steps of
    2⁻⁶, variances positive.
    """
    generator = torch.Generator().manual_seed(1)
    norms = {f"{name}.weight" for name, m in model.named_modules() if "Norm" in type(m).__name__}
    for name, t in model.state_dict().items():
        scale = next((x for pattern, x in c.scale.items() if re.search(pattern, name)), 1.0)
        if t.is_floating_point() and scale:
            noise = torch.randn(t.shape, generator=generator)
            if name.endswith("running_var"):
                t.copy_(0.5 + noise.abs())
            elif name in norms:
                # no -0: Gemma's goes through + 1 - 1
                t.copy_((scale * (c.norm + 0.3 * noise) * 64).round() / 64 + 0.0)
            else:
                t.copy_(scale * spread(t, c.gain) * noise)


def spread(t: Tensor, gain: float) -> float:
    if t.dim() < 2:
        return 0.3
    return gain * (t[0].numel() if t.dim() == 4 else t.shape[-1]) ** -0.5


class Lifted(TorchFunctionMode):
    """What transformers casts to fp32 stays fp64: rotary tables, RMS norms, the softmax,
    routing.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = {torch.float32: torch.float64}
        args = tuple(wide.get(a, a) if isinstance(a, torch.dtype) else a for a in args)
        kwargs = {
            k: wide.get(v, v) if isinstance(v, torch.dtype) else v
            for k, v in (kwargs or {}).items()
        }
        if func is torch.zeros:  # DAB-DETR's queries start in the default precision
            kwargs.setdefault("dtype", torch.float64)
        return (Tensor.double if func is Tensor.float else func)(*args, **kwargs)


def lift(forward: Callable[..., Any]) -> Callable[..., Any]:
    def lifted(**given: Any) -> Any:
        with Lifted():
            return forward(**given)

    return lifted


@cache
def folder(c: Case) -> Path:
    """The model as transformers saves it."""
    build(c).save_pretrained(shelf() / c.name)
    return shelf() / c.name


@cache
def theirs(c: Case, dtype: torch.dtype = torch.float32) -> Any:
    if c is ORIGINAL:
        return deepcopy(build(c)).to(dtype)
    if dtype != torch.float64:
        return verify.load_in_transformers(folder(c), dtype)
    with Lifted():
        other = verify.load_in_transformers(folder(c), dtype)
    if other._can_set_experts_implementation():
        other.set_experts_implementation("eager")  # the grouped product has no fp64
    other.forward = lift(other.forward)
    return other


@cache
def foreign(c: Case) -> ForeignTensors:
    return build(c).foreign() if c is ORIGINAL else read_tensors(folder(c), ExitStack())


def fill(c: Case, spec: weft.spec.Spec, dtype: torch.dtype = torch.float32) -> weft.Model:
    """A spec with the case's weights, through its family's table."""
    return fill_model(family(c.family), spec, foreign(c), set(), "cpu", dtype, 0, shelf()).eval()


@cache
def ours(c: Case, dtype: torch.dtype = torch.float32) -> weft.Model:
    if c is not ORIGINAL:
        return weft.load(folder(c), dtype=dtype)
    f = c.fields
    return fill(
        c,
        weft.transformer(
            depth=f["num_encoder_layers"],
            width=f["d_model"],
            heads=f["nhead"],
            hidden=f["dim_feedforward"],
            vocab_size=f["vocabulary"],
            final=True,
        ),
        dtype,
    )


@cache
def saved(c: Case) -> Path:
    """The same folder after it went through Weft."""
    return weft.save(ours(c), shelf() / f"{c.name}-again")


@cache
def scratch(c: Case) -> Path:
    """The same model as one that never saw a file: its config is all Weft's."""
    # not inside the context, where a first call would build transformers' model on meta too
    loaded = ours(c)
    with torch.device("meta"):
        model = weft.Model(loaded.spec)
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.family = c.family  # several can say some specs
    return weft.save(model, shelf() / f"{c.name}-scratch")


def example(c: Case, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return verify.example(ours(c).spec, 0, dtype)


@cache
@torch.no_grad()
def answers(c: Case, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """What the other side says to the example."""
    return verify.run_theirs(theirs(c, dtype), ours(c).spec, example(c, dtype))


@torch.no_grad()
def differences(
    c: Case, model: weft.Model | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, float]:
    """Largest difference per output between a model (the loaded one) and the other side."""
    batch = example(c, dtype)
    return verify.output_differences(
        verify.run_ours(model or ours(c, dtype), batch), answers(c, dtype), batch
    )
