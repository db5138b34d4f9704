"""One tiny model per family in the words of published config.json files; norms have a large eps, so
that another shows. Nothing here knows Weft.
"""

from typing import Any

TEXT: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 67,
    "max_position_embeddings": 32,
    "layer_norm_eps": 1e-3,
}
GPT: dict[str, Any] = {
    "n_layer": 2,
    "n_embd": 32,
    "n_head": 4,
    "vocab_size": 67,
    "n_positions": 32,
    "layer_norm_epsilon": 1e-3,
}
LLAMA = TEXT | {
    "num_key_value_heads": 2,
    "head_dim": 12,
    "rms_norm_eps": 1e-3,
    "hidden_act": "silu",
}
T5: dict[str, Any] = {
    "num_layers": 2,
    "d_model": 32,
    "d_kv": 6,
    "num_heads": 4,
    "d_ff": 48,
    "vocab_size": 67,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 9,
    "layer_norm_epsilon": 1e-3,
}
GATED_T5 = T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
BART: dict[str, Any] = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "d_model": 32,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": 67,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
}
VIT: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 5,
    "layer_norm_eps": 1e-3,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
PATTERN = ["full_attention", "sliding_attention"] * 2

# family -> architecture and the keys that differ from the published defaults
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", TEXT),
    "roberta": ("RobertaForMaskedLM", TEXT | {"type_vocab_size": 1, "pad_token_id": 1}),
    "electra": ("ElectraForPreTraining", TEXT | {"embedding_size": 16}),
    "modernbert": (
        "ModernBertForMaskedLM",
        TEXT
        | {"num_hidden_layers": 4, "local_attention": 4, "layer_types": PATTERN, "norm_eps": 1e-3},
    ),
    "gpt": ("OpenAIGPTLMHeadModel", GPT),
    "gpt2": ("GPT2LMHeadModel", GPT),
    "gpt3": ("GPT2LMHeadModel", GPT | {"n_layer": 3}),
    "bloom": (
        "BloomForCausalLM",
        {
            "n_layer": 2,
            "hidden_size": 32,
            "n_head": 4,
            "vocab_size": 67,
            "layer_norm_epsilon": 1e-3,
        },
    ),
    "llama": ("LlamaForCausalLM", LLAMA | {"rope_parameters": LLAMA3_ROPE}),
    "mistral": ("MistralForCausalLM", LLAMA | {"sliding_window": 4}),
    "mixtral": ("MixtralForCausalLM", LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gpt_neox": ("GPTNeoXForCausalLM", TEXT | {"num_attention_heads": 2}),
    "starcoder2": (
        "Starcoder2ForCausalLM",
        TEXT | {"num_key_value_heads": 2, "sliding_window": 4, "norm_epsilon": 1e-3},
    ),
    "gemma2": ("Gemma2ForCausalLM", LLAMA | {"sliding_window": 4, "query_pre_attn_scalar": 7}),
    "qwen3": ("Qwen3ForCausalLM", LLAMA | {"head_dim": 10}),
    "olmo2": (
        "Olmo2ForCausalLM",
        {key: value for key, value in LLAMA.items() if key != "head_dim"},
    ),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5_v1_1": ("T5ForConditionalGeneration", GATED_T5),
    "mt5": ("MT5ForConditionalGeneration", GATED_T5),
    "byt5": ("T5ForConditionalGeneration", GATED_T5 | {"num_layers": 3, "num_decoder_layers": 1}),
    "bart": ("BartForConditionalGeneration", BART),
    "marian": ("MarianMTModel", BART | {"scale_embedding": True, "activation_function": "swish"}),
    "pegasus": (
        "PegasusForConditionalGeneration",
        BART | {"scale_embedding": True, "activation_function": "relu"},
    ),
    "vit": ("ViTForImageClassification", VIT),
    "deit": ("DeiTForImageClassificationWithTeacher", VIT),
    "mae": (
        "ViTMAEForPreTraining",
        VIT
        | {
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 2,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 24,
        },
    ),
    "dinov2": (
        "Dinov2Model",
        {key: value for key, value in VIT.items() if key != "intermediate_size"} | {"mlp_ratio": 2},
    ),
    "swin": (
        "SwinForImageClassification",
        {
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 2, 2],
            "num_heads": [2, 4, 4],
            "window_size": 4,
            "num_labels": 5,
            "image_size": 36,
        },
    ),
    "dab_detr": (
        "DabDetrForObjectDetection",
        {
            **{key: value for key, value in BART.items() if key not in ("d_model", "vocab_size")},
            "hidden_size": 32,
            "num_queries": 7,
            "num_labels": 5,
            "use_timm_backbone": False,
            "backbone_config": {
                "embedding_size": 8,
                "hidden_sizes": [16, 32],
                "depths": [1, 2],
                "layer_type": "bottleneck",
                "hidden_act": "relu",
            },
        },
    ),
    "detr": (
        "DetrForObjectDetection",
        {
            **BART,
            "num_queries": 7,
            "num_labels": 5,
            "use_timm_backbone": False,
            "backbone_config": {
                "embedding_size": 8,
                "hidden_sizes": [16, 32],
                "depths": [1, 2],
                "layer_type": "bottleneck",
                "hidden_act": "relu",
            },
        },
    ),
}


def config_of(name: str) -> dict[str, Any]:
    if name not in CONFIGS:
        return {}
    architecture, keys = CONFIGS[name]
    return keys | {"architectures": [architecture]}
