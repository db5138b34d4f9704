"""Compare decoding speed with transformers and CTranslate2: the same weights in one process, tokens
per second.

    python -m benchmarks.decode [--rounds 5] [--only gpt2] [--threads 2] [--busy] [--receipt FILE]

GPT-2 (6 blocks, width 384, 8,192 tokens) continues 16 tokens with 128; a translation model like
Marian (6 + 6 blocks, width 512, 32,000 tokens) reads 24 tokens and generates 64. Decoding is
greedy, with one and eight rows, and with four beams. No row ends early, so all systems do the same
work. Ours and transformers' in float32 and bf16, CTranslate2's in float32 and int8. First the
float32 greedy tokens of all three are compared; where more than a fifth of the rows differ nothing
is measured. Systems take turns; a time is the median of the rounds, a ratio (above 1: we are
faster) the median over rounds of neighbours, so a busy machine slows all. The last line is JSON:
model/task -> times in milliseconds and ratios.
"""

import argparse
import copy
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ctranslate2
import tokenizers
import torch
import transformers as T

import weft
from weft.generate.beam_search import beam_search
from weft.generate.decoding import generate

from . import command, receipt

ALPHA = 0.6
TASKS = {"greedy 1": (1, 1), "greedy 8": (8, 1), "beam 4": (1, 4)}  # rows, beams
OURS = {"float32": torch.float32, "bf16": torch.bfloat16}
# theirs, ours
COMPARED = (
    ("transformers float32", "float32"),
    ("transformers bf16", "bf16"),
    ("ctranslate2 float32", "float32"),
    ("ctranslate2 int8", "bf16"),
)

Run = Callable[[], list[list[int]]]
Systems = dict[str, Run]


class Case(NamedTuple):
    vocabulary: int
    read: int  # tokens that are given
    say: int  # tokens that are asked for
    make: Callable[[int], Any]
    opened: type  # CTranslate2's class for it


def gpt2(vocabulary: int) -> Any:
    return T.GPT2LMHeadModel(
        T.GPT2Config(
            n_layer=6,
            n_embd=384,
            n_head=6,
            vocab_size=vocabulary,
            n_positions=256,
            initializer_range=0.08,
            bos_token_id=0,
            eos_token_id=1,
        )
    )


def marian(vocabulary: int) -> Any:
    return T.MarianMTModel(
        T.MarianConfig(
            encoder_layers=6,
            decoder_layers=6,
            d_model=512,
            encoder_attention_heads=8,
            decoder_attention_heads=8,
            encoder_ffn_dim=2048,
            decoder_ffn_dim=2048,
            vocab_size=vocabulary,
            max_position_embeddings=128,
            init_std=0.08,
            activation_function="swish",
            scale_embedding=True,
            pad_token_id=vocabulary - 1,
            eos_token_id=0,
            decoder_start_token_id=vocabulary - 1,
            forced_eos_token_id=None,
        )
    )


CASES = {
    "gpt2": Case(8192, 16, 128, gpt2, ctranslate2.Generator),
    "marian": Case(32_000, 24, 64, marian, ctranslate2.Translator),
}


def prepare(case: Case, folder: Path, threads: int) -> tuple[Any, weft.Model, dict[str, Any]]:
    """One set of weights three times: written by us in Hugging Face's layout, read by all."""
    theirs = case.make(case.vocabulary).eval()
    theirs.save_pretrained(folder / "first")
    ours = weft.load(folder / "first")
    weft.save(ours, folder / "hf", to="hf")
    names = {f"t{i}": i for i in range(case.vocabulary - 1)} | {"<pad>": case.vocabulary - 1}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(names, unk_token="t2")).save(
        str(folder / "hf" / "tokenizer.json")
    )
    marks = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "t2",
        "bos_token": "t0",
        "pad_token": "<pad>",
        "eos_token": f"t{theirs.config.eos_token_id}",
    }
    (folder / "hf" / "tokenizer_config.json").write_text(json.dumps(marks))
    opened = {}
    for kind in ("float32", "int8"):
        ctranslate2.converters.TransformersConverter(str(folder / "hf")).convert(
            str(folder / kind), quantization=kind
        )
        opened[kind] = case.opened(
            str(folder / kind), compute_type=kind, intra_threads=threads, inter_threads=1
        )
    theirs.generation_config.eos_token_id = theirs.generation_config.forced_eos_token_id = None
    return theirs, ours, opened


def runs(
    case: Case, theirs: Any, ours: weft.Model, opened: dict[str, Any], rows: int, beams: int
) -> Systems:
    ids = torch.randint(
        3, case.vocabulary - 1, (rows, case.read), generator=torch.Generator().manual_seed(1)
    )
    prompts = ids.tolist()
    pieces = [[f"t{i}" for i in row] for row in ids.tolist()]
    mask = torch.ones_like(ids)
    half = theirs.__class__(theirs.config).to(torch.bfloat16).eval()
    half.load_state_dict(theirs.state_dict())
    half.generation_config = theirs.generation_config

    def weft_run(model: weft.Model) -> Run:
        if beams == 1:
            return lambda: [
                said.tokens for said in generate(model, prompts, max_new_tokens=case.say)
            ]
        return lambda: [
            said[0].tokens
            for said in beam_search(
                model, prompts, num_beams=beams, length_penalty=ALPHA, max_new_tokens=case.say
            )
        ]

    def transformers_run(model: Any) -> Run:
        return lambda: model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=case.say,
            do_sample=False,
            num_beams=beams,
            length_penalty=ALPHA,
        )[:, -case.say :].tolist()

    def ctranslate2_run(kind: str) -> Run:
        model = opened[kind]
        if case.opened is ctranslate2.Generator:
            return lambda: [
                found.sequences_ids[0]
                for found in model.generate_batch(
                    pieces,
                    beam_size=beams,
                    max_length=case.say,
                    min_length=case.say,
                    include_prompt_in_result=False,
                    length_penalty=ALPHA,
                )
            ]
        return lambda: [
            [int(name[1:]) for name in found.hypotheses[0]]
            for found in model.translate_batch(
                pieces,
                beam_size=beams,
                max_decoding_length=case.say,
                min_decoding_length=case.say,
                length_penalty=ALPHA,
            )
        ]

    return {
        **{f"weft {p}": weft_run(copy.deepcopy(ours).to(dtype)) for p, dtype in OURS.items()},
        "transformers float32": transformers_run(theirs),
        "transformers bf16": transformers_run(half),
        **{f"ctranslate2 {kind}": ctranslate2_run(kind) for kind in opened},
    }


def refuse_unless_equal(systems: Systems, say: int, name: str) -> None:
    """Greedy, in float32, nearly every token: two implementations may differ where two tokens are
    as likely.
    """
    found = {name: run() for name, run in systems.items()}
    for system, rows in found.items():
        if any(len(row) != say for row in rows):
            sys.exit(
                f"{name}: {system} said {[len(row) for row in rows]} tokens, not {say}, so nothing "
                "is timed"
            )
        same = statistics.mean(
            row == own for row, own in zip(rows, found["weft float32"], strict=True)
        )
        if system.endswith("float32") and "greedy" in name and same < 0.8:
            sys.exit(f"{name}: {system} does not say what weft float32 says, so nothing is timed")


def measure(systems: Systems, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in systems}
    for i in range(rounds + 1):
        for name in [*systems][i % len(systems) :] + [*systems][: i % len(systems)]:
            began = clock()
            systems[name]()
            if i:
                times[name].append(clock() - began)
    found = {name: round(statistics.median(each) * 1e3, 1) for name, each in times.items()}
    for other, ours in COMPARED:
        pairs = zip(times[f"weft {ours}"], times[other], strict=True)
        found[f"{ours} / {other}"] = round(statistics.median(t / o for o, t in pairs), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--busy",
        action="store_true",
        help="count processor time, for a machine that does other work; with one thread",
    )
    parser.add_argument("--quick", action="store_true", help="eight new tokens per row")
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    given = parser.parse_args()
    began = time.perf_counter()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    T.utils.logging.disable_progress_bar()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    found: dict[str, dict[str, float]] = {}
    for name, case in CASES.items():
        if given.only not in ("", name):
            continue
        if given.quick:
            case = case._replace(say=8)
        with tempfile.TemporaryDirectory() as folder:
            made = prepare(case, Path(folder), given.threads)
        for task, (rows, beams) in TASKS.items():
            systems = runs(case, *made, rows, beams)
            refuse_unless_equal(systems, case.say, f"{name}, {task}")
            row = found[f"{name}/{task}"] = measure(
                systems, given.rounds, time.process_time if given.busy else time.perf_counter
            )
            print(f"{name}, {task}")
            for key, figure in row.items():
                print(f"  {key:36} {figure:9.2f}{'' if ' / ' in key else ' ms'}", flush=True)
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)
    print(json.dumps(found))


if __name__ == "__main__":
    command.run(main)
