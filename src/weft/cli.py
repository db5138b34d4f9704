"""The command `weft`: one verb, one function. Nothing heavy is imported before its verb needs it."""
import argparse
import os
import signal
import sys
from collections.abc import Callable
from io import TextIOWrapper
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import weft

from .say import console, tell, waiting

if TYPE_CHECKING:
    from .recipe import Recipe
    from .run import Made

LIMIT = 1e-5                               # above it, two float32 implementations do not do the same
STOPPED = 75                               # asked to stop, saved, not finished: run it again (EX_TEMPFAIL)


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def families(args: argparse.Namespace) -> int:
    from . import show
    found = show.sizes()
    tell(args, found, lambda width: show.catalogue(found, width))
    return 0


def show(args: argparse.Namespace) -> int:
    from . import show, spec
    try:
        from .families import preset
        name, model = preset(args.name)
    except ValueError:
        if not Path(args.name).is_dir():
            raise
        from .interop.describe import describe
        name, model = args.name, describe(Path(args.name))[1]
    length = show.length(model)
    found = {"name": name, "parameters": model.parameters(), "flops": model.flops(length=length), "length": length,
             "spec": spec.to_plain(model)}
    tell(args, found, lambda width: show.page(name, model, width))
    return 0


def verify(args: argparse.Namespace) -> int:
    from . import show
    with waiting(f"comparing {args.folder} with transformers"):
        from .interop import verify
        found = verify.verify(args.folder)
    same = all(difference <= LIMIT for difference in found.values())      # a NaN is not
    plain = {"folder": args.folder, "differences": {n: d if isfinite(d) else None for n, d in found.items()}, "limit": LIMIT, "same": same}
    tell(args, plain, lambda width: show.differences(found, width))
    if not args.json:
        print(f"{'the same' if same else 'not the same'} within {LIMIT:g}")
    return 0 if same else 1


def convert(args: argparse.Namespace) -> int:
    from . import show
    from .interop.describe import inside, refuse
    out = Path(args.out)
    refuse(out)
    with waiting(f"converting {args.folder}"):
        from .interop.folder import load, save
        from .interop.hub import fetch
        folder = fetch(args.folder)
        if out.resolve() == folder.resolve():
            raise ValueError(f"{args.out} is the folder to read; give another one to write")
        model = load(folder, dtype=None)
        save(model, out, to=args.to)
    found = {"read": inside(folder, model.spec), "written": inside(out, model.spec)}
    tell(args, found, lambda width: show.folders(found, width))
    return 0


def prepare(args: argparse.Namespace) -> int:
    from . import recipe, watch
    from .data.prepare import command_data
    from .data.prepare import prepare as make
    if args.paths[0].partition(":")[0].endswith((".py", "recipe.json")):
        data = recipe.change(recipe.read(args.paths[0]), args.set).data
    else:
        words = ("kind", "format", "document", "tokenizer", "vocabulary", "lowercase", "sentences", "valid", "names", "columns", "number")
        data = command_data(args.paths, **{word: getattr(args, word) for word in words})
    with watch.Preparing("looking at the sources") as preparing:
        folder = make(data, args.out, part=watch.part(args.part), workers=args.workers, say=preparing.show)
    found = watch.prepared(folder, preparing)
    tell(args, found, lambda width: watch.prepared_page(found))
    return 0


def train(args: argparse.Namespace) -> int:
    from . import recipe
    return run(recipe.change(recipe.read(args.recipe), args.set), args.out or (args.recipe if Path(args.recipe).is_dir() else None), args)


def resume(args: argparse.Namespace) -> int:
    from . import recipe
    if not args.check:
        return run(recipe.of_run(Path(args.run_folder)), args.run_folder, args)
    with waiting(f"training the last interval of {args.run_folder} again"):
        from .run import check
        proof = check(args.run_folder)
    plain = proof._asdict() | {"same": proof.kept == proof.again}
    said = f"steps {proof.begin:,} to {proof.end:,} trained again in {proof.seconds:.0f} s: "
    said += f"every bit is the same (SHA-256 {proof.kept[:16]}…)" if plain["same"] else \
        f"NOT the same: {proof.kept[:16]}… was saved, {proof.again[:16]}… came out"
    tell(args, plain, lambda width: said)
    return 0 if plain["same"] else 1


def run(recipe: "Recipe", out: str | None, args: argparse.Namespace) -> int:
    """Train, with words before, meanwhile and after."""
    from . import watch
    from .run import folder_of, keep_of
    from .run import train as steps
    screen: list[watch.Screen] = []
    held: list[Made] = []                  # nothing, if there was nothing left to do
    first = int(os.environ.get("RANK", "0")) == 0

    def begun(made: "Made", seconds: float, tokens: int) -> None:
        preparing.close()
        held.append(made)
        if first:
            found = watch.forecast(made, seconds, tokens)
            console(stderr=True).print(watch.forecast_page(found, keep_of(recipe)))
            screen.append(watch.Screen(recipe, found["done"], found["flops"] / recipe.steps, found["peak"]))

    say = (lambda line: print(f"weft: {line}", file=sys.stderr, flush=True)) if first else (lambda line: None)
    preparing = watch.Preparing("getting ready")
    try:
        for event in steps(recipe, out, say=say, progress=preparing.show, begun=begun, board=args.tensorboard):
            if screen:
                screen[0].show(event)
    finally:
        preparing.close()
        for one in screen:
            one.close()
    folder, ended = folder_of(recipe, out), all(made.trainer.step == recipe.steps for made in held)
    if first:
        found = watch.status(folder)
        tell(args, found, lambda width: watch.status_page(found))
        if not found["finished"]:
            say(f"stopped and saved; to go on: weft resume {folder}")
    return 0 if ended and (not first or found["finished"]) else STOPPED


def status(args: argparse.Namespace) -> int:
    from . import watch
    found = watch.status(Path(args.run_folder))
    tell(args, found, lambda width: watch.status_page(found))
    return 0


# The command

class Verb(Protocol):
    def __call__(self, run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser: ...


def parser() -> Parser:
    top = Parser(prog="weft", description="Every Transformer, woven from one block.", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB")

    def verb(run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser:
        made = verbs.add_parser(run.__name__, help=text, description=f"{text[0].upper()}{text[1:]}. {more}", allow_abbrev=False)
        made.add_argument("--json", action="store_true", help="print JSON")
        made.set_defaults(run=run)
        return made

    for add in (add_models, add_prepare, add_training):
        add(verb)
    return top


def add_models(verb: Verb) -> None:
    verb(families, "what can be built: families, sizes with their parameters, papers")
    verb(show, "a model's parts with shapes and parameters, its block as an equation, its cost").add_argument(
        "name", metavar="NAME", help="such as bert-base, llama-3.2-1b or bert; or a folder with config.json or weft.json")
    verb(verify, "compare a folder here and in transformers on one input",
         f"Exit code 1 where an output differs by more than {LIMIT:g}.").add_argument(
        "folder", metavar="FOLDER", help="a folder or hub name in Hugging Face's layout")
    made = verb(convert, "write a folder's model in Hugging Face's layout or in Weft's")
    made.add_argument("folder", metavar="IN", help="a folder or hub name, in either layout")
    made.add_argument("out", metavar="OUT", help="a new or an empty folder, or a model folder to write over")
    made.add_argument("--to", required=True, choices=("hf", "weft"), help="the layout to write")


def add_prepare(verb: Verb) -> None:
    made = verb(prepare, "turn sources into shards, once; again, it goes on where it was",
                "A recipe's data, or files: weft prepare a.txt.gz b.txt.gz --out shards.")
    made.add_argument("paths", metavar="RECIPE|PATH", nargs="+", help="a recipe, or files, globs and addresses; .gz and .zst too")
    made.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change the recipe")
    made.add_argument("--out", metavar="FOLDER", help="prepared/<fingerprint> unless given")
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


def add_training(verb: Verb) -> None:
    made = verb(train, "train a recipe; run it again and it goes on, bit for bit",
                f"Ctrl-C or SIGTERM saves and leaves with exit code {STOPPED}.")
    made.add_argument("recipe", metavar="RECIPE", help="recipes/gpt_char.py, the same with :name, a recipe.json, or a run's folder")
    made.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change the recipe, such as optimiser.rate=3e-4")
    made.add_argument("--out", metavar="RUN", help="the run's folder; runs/<name> unless given")
    made.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard, into RUN/tensorboard")
    verb(status, "how far a run is").add_argument("run_folder", metavar="RUN")
    made = verb(resume, "go on with a run; --check proves that it goes on exactly")
    made.add_argument("run_folder", metavar="RUN")
    made.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard, into RUN/tensorboard")
    made.add_argument("--check", action="store_true", help="train the last interval again and compare every bit")


def read(words: list[str]) -> argparse.Namespace:
    """The arguments; a verb or an option that does not exist gets the nearest that does."""
    from .values import suggest
    top = parser()
    verbs = next(a.choices for a in top._actions if isinstance(a, argparse._SubParsersAction))
    if words and not words[0].startswith("-") and words[0] not in verbs:
        raise ValueError(f"no verb {words[0]!r}; {suggest(words[0], list(verbs))}")
    args, rest = top.parse_known_args(words)
    if rest:
        known = [o for a in (verbs[args.verb] if args.verb else top)._actions for o in a.option_strings if o.startswith("--")]
        raise ValueError(f"{args.verb or 'the command'} does not know {rest[0]!r}; {suggest(rest[0], known)}")
    return args


def leave(*_: object) -> None:
    """SIGTERM while nothing is under way that could be lost; during training, `train.signals` has it."""
    os.write(2, b"weft: stopped; to go on, run it again\n")
    os._exit(STOPPED)


def main(words: list[str] | None = None) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")         # a terminal without × still gets the rest
    try:
        args = read(sys.argv[1:] if words is None else words)
        if args.verb is None:
            parser().print_help()
            return 0
        if words is None and args.verb in ("train", "resume"):
            signal.signal(signal.SIGTERM, leave)
        code: int = args.run(args)
        sys.stdout.flush()
        if words is None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)    # it is over, and the exit code says how
        return code
    except KeyboardInterrupt:
        if args.verb in ("prepare", "train", "resume"):
            print("weft: stopped; to go on, run it again", file=sys.stderr)
        return 130
    except BrokenPipeError:                # the reader, such as head, has seen enough; rich leaves with 1 too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, RuntimeError) as error:
        print("weft:", " ".join(str(error).split()), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
