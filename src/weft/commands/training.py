"""Data prepared, recipes trained."""
import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..say import console, tell, waiting
from . import STOPPED, Verb, bad_rows_option, say, way_out

if TYPE_CHECKING:
    from ..overrides import Say
    from ..recipe import Recipe
    from ..run import Made


def prepare(args: argparse.Namespace) -> int:
    from .. import recipe, watch
    from ..data.prepare import command_data
    from ..data.prepare import prepare as make
    from ..data.quarantine import notes
    if args.paths[0].partition(":")[0].endswith((".py", "recipe.json")):
        data = recipe.change(recipe.read(args.paths[0]), args.set).data
    else:
        words = ("kind", "format", "document", "tokenizer", "vocabulary", "lowercase", "sentences", "valid", "names", "columns", "number")
        data = command_data(args.paths, **{word: getattr(args, word) for word in words})
    data = replace(data, max_bad_rows=max(data.max_bad_rows, args.max_bad_rows))
    with watch.Preparing("looking at the sources") as preparing:
        folder = make(data, args.out, part=watch.part(args.part), workers=args.workers, say=preparing.show, verify=True,
                      overwrite=args.overwrite)
    for line in notes(folder):
        say(line)
    found = watch.prepared(folder, preparing)
    tell(args, found, lambda width: watch.prepared_page(found))
    return 0


def train(args: argparse.Namespace) -> int:
    from .. import recipe
    from ..train.same import recipe_of
    folder = Path(args.recipe)
    read = recipe_of(folder, lambda line: None) if folder.is_dir() else recipe.read(args.recipe)
    return run(recipe.change(read, args.set, speaker()), args.out or (args.recipe if folder.is_dir() else None), args)


def resume(args: argparse.Namespace) -> int:
    if not args.check:
        from ..train.same import recipe_of
        return run(recipe_of(Path(args.run_folder), lambda line: None), args.run_folder, args)     # the run itself says what it repairs
    with waiting(f"training the last interval of {args.run_folder} again"):
        from ..prove import check
        proof = check(args.run_folder)
    plain = proof._asdict() | {"same": proof.kept == proof.again}
    said = f"steps {proof.begin:,} to {proof.end:,} trained again in {proof.seconds:.0f} s: "
    said += f"every bit is the same (SHA-256 {proof.kept[:16]}…)" if plain["same"] else \
        f"NOT the same: {proof.kept[:16]}… was saved, {proof.again[:16]}… came out"
    tell(args, plain, lambda width: said)
    return 0 if plain["same"] else 1


def is_first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def speaker() -> "Say":
    """Lines on stderr, from the first rank alone."""
    return (lambda line: print(f"weft: {line}", file=sys.stderr, flush=True)) if is_first() else (lambda line: None)


def run(recipe: "Recipe", out: str | None, args: argparse.Namespace) -> int:
    """Train, with words before, meanwhile and after."""
    from .. import watch
    from ..data.ownership import refuse_strange
    from ..run import folder_of
    from ..run import train as steps
    from ..train.average import keep_of
    screen: list[watch.Screen] = []
    held: list[Made] = []                  # nothing, if there was nothing left to do
    if first := is_first():
        refuse_strange(folder_of(recipe, out), "recipe.json", "checkpoints/step-*/manifest.json")

    def begun(made: "Made", seconds: float, tokens: int) -> None:
        preparing.close()
        held.append(made)
        if first:
            found = watch.forecast(made, seconds, tokens)
            console(stderr=True).print(watch.forecast_page(found, keep_of(recipe)))
            screen.append(watch.Screen(recipe, found["done"], found["flops"] / recipe.steps, found["peak"]))

    say = speaker()
    preparing = watch.Preparing("getting ready")
    try:
        for event in steps(recipe, out, say=say, progress=preparing.show, begun=begun, board=args.tensorboard):
            if screen:
                screen[0].show(event)
    finally:
        preparing.close()
        for one in screen:
            one.close()
    ended = all(made.trainer.step == recipe.steps for made in held)
    if first:
        ended = report(folder_of(recipe, out), args) and ended
    return 0 if ended else STOPPED


def report(folder: Path, args: argparse.Namespace) -> bool:
    """Says how a run stands; is it finished?"""
    from .. import status
    found, say = status.status(folder), speaker()
    tell(args, found, lambda width: status.page(found))
    if not found["finished"]:
        say(f"stopped; saved at step {found['saved']:,}; to go on: weft resume {folder}" if found["saved"] else
            "stopped; nothing is saved yet, so the next start begins at the first step")
    elif command := way_out(str(folder)):
        say(command)
    return bool(found["finished"])


def status(args: argparse.Namespace) -> int:
    from .. import status
    folders = status.runs(args.run_folders)
    found = [status.status(folder) for folder in folders]
    if len(found) == 1:
        tell(args, found[0], lambda width: status.page(found[0]))
    else:
        tell(args, found, lambda width: status.table(found))
    return 0


def add_prepare(verb: Verb) -> None:
    made = verb(prepare, "turn sources into shards, once; again, it goes on where it was",
                "A recipe's data, or files: weft prepare a.txt.gz b.txt.gz --out shards. Finished shards are verified by their SHA-256; "
                "damaged ones are made again.")
    made.add_argument("paths", metavar="RECIPE|PATH", nargs="+", help="a recipe, or files, globs and addresses; .gz and .zst too")
    made.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change the recipe")
    made.add_argument("--out", metavar="FOLDER", help="prepared/<fingerprint> unless given")
    made.add_argument("--overwrite", action="store_true", help="replace finished data of other files or settings in the folder")
    made.add_argument("--part", metavar="I/N", help="only every N-th piece from the I-th (from 0): one job of N; the result is the same")
    made.add_argument("--workers", type=int, help="processes; as many as there are cores unless given")
    made.add_argument("--as", dest="kind", default="documents", metavar="ROW",
                      help="documents (unless given), pairs, examples, choices, tagged, questions, images, boxed")
    made.add_argument("--format", help="text, parallel, jsonl, csv, tsv, parquet, conll, squad, folder, coco, hub")
    made.add_argument("--document", default="blank", choices=("file", "line", "blank", "heading"), help="where a document of text ends")
    made.add_argument("--tokenizer", default="byte-bpe", help="byte-bpe unless given; bpe, wordpiece, unigram, bytes, characters, a file")
    made.add_argument("--vocabulary", type=int, default=32_000, help="32000 unless given")
    made.add_argument("--lowercase", action="store_true", default=None)
    made.add_argument("--sentences", action="store_true", help="keep where sentences start")
    made.add_argument("--valid", nargs="+", default=[], metavar="PATH", help="validation files")
    made.add_argument("--names", nargs="+", default=[], metavar="COLUMN", help="of files that do not name their columns")
    made.add_argument("--columns", nargs="+", default=[], metavar="COLUMN", help="those to read, the label last")
    made.add_argument("--number", action="store_true", help="the label is a number")
    bad_rows_option(made)


def add_training(verb: Verb) -> None:
    made = verb(train, "train a recipe; run it again and it goes on, bit for bit",
                f"Ctrl-C or SIGTERM saves and leaves with exit code {STOPPED}.")
    made.add_argument("recipe", metavar="RECIPE", help="recipes/gpt_char.py, the same with :name, a recipe.json, or a run's folder")
    made.add_argument("--set", action="append", default=[], metavar="PATH=VALUE",
                      help="change the recipe: optimiser.rate=3e-4, model.decoder.depth=6, model.decoder.blocks.*.norm=post")
    made.add_argument("--out", metavar="RUN", help="the run's folder; runs/<name> unless given")
    made.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard, into RUN/tensorboard")
    verb(status, "how far a run is and how good; several runs in a table").add_argument(
        "run_folders", metavar="RUN", nargs="+", help="a run's folder, or a folder of runs, such as runs")
    made = verb(resume, "go on with a run; --check proves that it goes on exactly")
    made.add_argument("run_folder", metavar="RUN")
    made.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard, into RUN/tensorboard")
    made.add_argument("--check", action="store_true", help="train the last interval again and compare every bit")


def add(verb: Verb) -> None:
    add_prepare(verb)
    add_training(verb)
