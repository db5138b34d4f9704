"""A family of one's own: OPT, a GPT-2 with ReLU and positions from 2 (Zhang et al. 2022,
arXiv:2205.01068).

weft verify FOLDER --code examples/extend/opt.py   # a folder with config.json and weights
"""

import weft
from weft.families import ConfigField, WeightAlias, WeightRow, layer_rows, size_table

# table 1, but for 350m, which has its norms after each branch
SIZES = size_table(
    "depth width heads",
    _125m=(12, 768, 12),
    _1__3b=(24, 2048, 32),
    _2__7b=(32, 2560, 32),
    _6__7b=(32, 4096, 32),
    _13b=(40, 5120, 40),
    _30b=(48, 7168, 56),
    _66b=(64, 9216, 72),
)


def make(vocab_size=50272, positions=2048, **rest):
    spec = weft.gpt2(vocab_size=vocab_size, activation="relu", embedding_dropout=0.0, **rest)
    places = weft.LearnedPositions(count=positions, offset=2)
    return weft.replace(spec, source=weft.replace(spec.source, positions=places))


BLOCK = "decoder.blocks.0"
# argument, key in config.json, place in the spec, default
FIELDS = (
    ConfigField("depth", "num_hidden_layers", "decoder.blocks.length", 12),
    ConfigField("width", ("hidden_size", "word_embed_proj_dim"), "width", 768),
    ConfigField("heads", "num_attention_heads", f"{BLOCK}.attention.inner.heads", 12),
    ConfigField("hidden", "ffn_dim", f"{BLOCK}.feedforward.inner.hidden", 3072),
    ConfigField("vocab_size", "vocab_size", "source.vocab_size", 50272),
    ConfigField("positions", "max_position_embeddings", "source.positions.count", 2048),
    ConfigField("dropout", "dropout", f"{BLOCK}.attention.dropout", 0.1),
    ConfigField("attention_dropout", "attention_dropout", f"{BLOCK}.attention.inner.dropout", 0.0),
    ConfigField("std", "init_std", "init.std", 0.02),
)
NAMES = {
    "attention.inner.query": "self_attn.q_proj",
    "attention.inner.key": "self_attn.k_proj",
    "attention.inner.value": "self_attn.v_proj",
    "attention.inner.out": "self_attn.out_proj",
    "attention.before": "self_attn_layer_norm",
    "feedforward.inner.up": "fc1",
    "feedforward.inner.down": "fc2",
    "feedforward.before": "final_layer_norm",
}
TOKENS = "model.decoder.embed_tokens.weight"
TABLE = (
    WeightRow("source.tokens.weight", TOKENS),
    WeightAlias("lm_head.weight", TOKENS, "source"),
    WeightRow("source.positions.weight", "model.decoder.embed_positions.weight"),
    *layer_rows("decoder", "model.decoder", {"norm": "final_layer_norm"}),
    *layer_rows("decoder.blocks.{}", "model.decoder.layers.{}", NAMES),
)
HEADS = {"OPTForCausalLM": lambda m, l: weft.LMHead(), "OPTModel": lambda m, l: weft.NoHead()}
KNOWN = {"do_layer_norm_before": (True,), "enable_bias": (True,)}  # other values are refused
PAPER = "arXiv:2205.01068"
weft.register(weft.Family("opt", PAPER, make, SIZES, "opt", FIELDS, TABLE, HEADS, "model.", KNOWN))
