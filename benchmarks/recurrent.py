"""Compare the recurrent encoder-decoder of examples/bahdanau.py with the Transformer on Multi30k,
English to German.

    WEFT_DATA=… python -m benchmarks.recurrent [--steps 300] [--seeds 1] [--output runs]
        [--plot FILE.svg] [--receipt FILE] [--times] [--quick]

Both have the same data, table, batches, optimiser, rate and schedule, about as many parameters, and
no dropout; neither was tuned. First they are trained with equal counted FLOPs; then the faster one
continues, exactly resumed, until it has trained for as many seconds as the other, by processor
seconds per step, measured alternately on one thread. BLEU is that of beam search on the test set of
2016, lower-cased as the models' vocabulary is. The time of a training step is also measured for
rows of 16 to 256 tokens, the same number of tokens in all: what a recurrence cannot do at once. The
picture is the alignment of one sentence. Restartable. The last line is JSON.
"""

import argparse
import gzip
import json
import os
import statistics
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import weft
from weft import recipe as R
from weft.generate.text_generator import TextGenerator
from weft.inference.open_model import open_model
from weft.metrics.translation import bleu
from weft.plan.cost import step_flops
from weft.plan.recipe_workload import workload_of_recipe
from weft.runs.logs.log import read_log
from weft.support.user_code import load_code

from . import command, receipt
from .trials import train_steps

VOCABULARY = 4000
TOKENS = 2048
LENGTHS = (16, 32, 64, 128, 256)
SENTENCE = "A man in a blue shirt is standing on a ladder cleaning a window."
NAMES = ("recurrent", "transformer")
BLEU = "BLEU (lower-cased)"


def model(name: str, small: bool = False) -> weft.Spec:
    width = 32 if small else {"recurrent": 176, "transformer": 128}[name]
    if name == "transformer":
        sizes: dict[str, Any] = {
            "depth": 1 if small else 3,
            "width": width,
            "heads": 4,
            "hidden": 4 * width,
        }
        plain: weft.Spec = weft.with_dropout(weft.transformer(**sizes, vocab_size=VOCABULARY), 0.0)
        return plain
    example = import_module("weft.support.user_code.bahdanau")
    spec: weft.Spec = example.bahdanau(width=width, vocab_size=VOCABULARY)
    return spec


def recipe_of(name: str, steps: int, seed: int, small: bool) -> R.Recipe:
    base = weft.load_recipe("recipes/translate_multi30k.py")
    return replace(
        base,
        name=f"recurrent-{name}{'-small' * small}-{seed}",
        model=model(name, small),
        data=replace(base.data, tokenizer=R.BPE(vocab_size=VOCABULARY, lowercase=True)),
        batch=R.TokenBudget(tokens=256 if small else TOKENS, length=64),
        steps=steps,
        optimiser=R.Adam(lr=2e-3),
        schedule=R.InverseSqrt(warmup_steps=100),
        grad_clip=1.0,
        average=None,
        checkpoints=R.Checkpoints(every_steps=100),
        eval_every=None,
        precision="fp32",
        seed=seed,
    )


def seconds_a_step(name: str, length: int, tokens: int, small: bool, rounds: int = 3) -> float:
    """The least of a few rounds, forward and backward: processor seconds of one thread, whatever
    else runs.
    """
    built = weft.build(model(name, small)).train()
    ids = torch.randint(5, VOCABULARY, (max(1, tokens // length), length))
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        F.cross_entropy(built(ids, ids).flatten(0, 1), ids.flatten()).backward()
        built.zero_grad()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def lines(name: str) -> list[str]:
    path = Path(os.environ["WEFT_DATA"]) / "multi30k" / f"{name}.gz"
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def trained(recipe: R.Recipe, output: Path, sentences: int) -> dict[str, Any]:
    """Train to the end, translate and score."""
    folder = output / recipe.name
    for event in train_steps(recipe, folder):
        if event.step % 50 == 0:
            left = event.seconds * (recipe.steps - event.step)
            print(f"  {recipe.name} {event.step}/{recipe.steps} loss {event.loss:.3f}, about "
                  f"{left:.0f} s left",
                  flush=True)  # fmt: skip
    with torch.inference_mode():
        texts = lines("test_2016_flickr.en")[:sentences]
        found = TextGenerator(open_model(folder)).translate(texts, batch_size=64)
    log = read_log(folder / "log.jsonl")
    return {
        "steps": recipe.steps,
        "flops": recipe.steps * flops_a_step(recipe),
        "valid": next(round(each["valid"]["loss"], 4) for each in reversed(log) if "valid" in each),
        **{
            key: round(v, 2)
            for key, v in bleu(found, lines("test_2016_flickr.de")[:sentences], lowercase=True)
            if not isinstance(v, str)
        },
    }


def flops_a_step(recipe: R.Recipe) -> float:
    """Of rows as long as the sentences are on average."""
    return step_flops(workload_of_recipe(recipe, row_length=16))


def alignment(folder: Path, text: str) -> tuple[list[str], list[str], list[list[float]]]:
    """The pieces of a sentence and of its translation, and how each of the latter weighs the
    former.
    """
    generator = TextGenerator(open_model(folder))
    source = generator.encode_prompt(text)
    with torch.inference_mode():
        ((best,),) = generator.beam_search([text], num_beams=4)
        decoder: Any = generator.model.decoder
        decoder.weights = []
        target = [generator.start(), *best.tokens.tokens[:-1]]
        generator.model(torch.tensor([source]), torch.tensor([target]))
    weights = torch.cat(decoder.weights).tolist()
    pieces = [
        [generator.tokenizer.decode([i], skip_special_tokens=False).strip() for i in ids]
        for ids in (source, best.tokens.tokens)
    ]
    return pieces[0], pieces[1], weights


def plot(folder: Path, times: dict[str, dict[str, float]], file: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    from .plots import OTHER, STYLE, WEFT

    source, target, weights = alignment(folder, SENTENCE)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), width_ratios=(1.2, 1))
        axes[0].imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="auto")
        axes[0].set_xticks(range(len(source)), source, rotation=70, ha="right", fontsize=8)
        axes[0].set_yticks(range(len(target)), target, fontsize=8)
        axes[0].set_title("what each German piece attends to", fontsize=10)
        for name, colour in zip(NAMES, (OTHER, WEFT), strict=True):
            axes[1].plot(
                list(map(int, times[name])),
                list(times[name].values()),
                "o-",
                color=colour,
                label=name,
            )
        axes[1].set_xscale("log", base=2)
        axes[1].set_ylim(bottom=0)
        axes[1].set_xticks(LENGTHS, LENGTHS)
        axes[1].set(
            xlabel="tokens in a row", ylabel=f"seconds a step of {TOKENS:,} tokens, one thread"
        )
        axes[1].legend(frameon=False)
        figure.tight_layout()
        figure.savefig(file, facecolor="white", metadata={"Date": None})
        plt.close(figure)


def measure_times(small: bool) -> dict[str, dict[str, float]]:
    lengths, tokens = ((16, 32), 64) if small else (LENGTHS, TOKENS)
    times: dict[str, dict[str, float]] = {name: {} for name in NAMES}
    for length in lengths:
        for name in NAMES:
            times[name][str(length)] = round(seconds_a_step(name, length, tokens, small), 4)
        both = ", ".join(f"{name} {times[name][str(length)]:.3f} s" for name in NAMES)
        print(f"rows of {length}: {both}", flush=True)
    return times


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300, help="of the Transformer")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--receipt", metavar="FILE")
    parser.add_argument("--times", action="store_true", help="measure seconds a step alone")
    parser.add_argument("--quick", action="store_true", help="models of width 32, four steps")
    options = parser.parse_args(arguments)
    start_time = time.perf_counter()
    torch.set_num_threads(1)
    load_code(["examples/bahdanau.py"])
    quick = options.quick
    count = 4 if options.quick else 1000
    steps = dict.fromkeys(NAMES, 4 if quick else options.steps)
    times = measure_times(quick)
    if options.times:
        return finish({"seconds_a_step": times}, options, start_time)
    recipes = {name: recipe_of(name, steps[name], 0, quick) for name in NAMES}
    ratio = flops_a_step(recipes["transformer"]) / flops_a_step(recipes["recurrent"])
    steps["recurrent"] = round(steps["transformer"] * ratio)
    spent = {name: steps[name] * times[name]["16"] for name in NAMES}
    slower, faster = sorted(NAMES, key=lambda name: -spent[name])
    longer = steps | {faster: round(steps[faster] * spent[slower] / spent[faster])}
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for budget, of in (("equal FLOPs", steps), ("equal time", longer)):
            for name in NAMES if budget == "equal FLOPs" else (faster,):
                recipe = recipe_of(name, of[name], seed, quick)
                row = trained(recipe, options.output, count)
                rows.append({"model": name, "budget": budget, "seed": seed, **row})
                print(json.dumps(rows[-1]), flush=True)
    result = {
        "parameters": {name: recipes[name].model.parameter_count() for name in NAMES},
        "seconds_a_step": times,
        "slower": slower,
        "runs": rows,
        "mean_BLEU": {
            f"{name}, {budget}": round(statistics.mean(values), 2)
            for name in NAMES
            for budget in ("equal FLOPs", "equal time")
            if (values := [r[BLEU] for r in rows if (r["model"], r["budget"]) == (name, budget)])
        },
    }
    if options.plot:
        plot(options.output / recipes["recurrent"].name, times, options.plot)
    return finish(result, options, start_time)


def finish(
    result: dict[str, Any], options: argparse.Namespace, start_time: float
) -> dict[str, Any]:
    if options.receipt:
        receipt.write(options.receipt, result, time.perf_counter() - start_time, options.seeds - 1)
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    command.run(main)
