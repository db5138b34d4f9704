"""The command `weft`: one verb, one function. Nothing heavy is imported before its verb needs it."""
import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import weft

if TYPE_CHECKING:
    from rich.console import Console

    from .spec import Model

LIMIT = 1e-5                               # above it, two float32 implementations do not do the same
PATIENCE = 2.0                             # seconds before a person wants to see that something happens


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
        name, model = find(args.name)
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


def find(name: str) -> "tuple[str, Model]":
    """The preset behind `family-size`, or a family's first size: presets have no other names on a command line."""
    from .families import NAMES, family
    from .values import suggest
    known = {f"{f.name}-{size}": (f, size) for f in map(family, NAMES) for size in f.sizes}
    first = f"{name}-{next(iter(family(name).sizes))}" if name in NAMES else name
    if first in known:
        found, size = known[first]
        return first, found(size)
    near = suggest(name.lower(), [*NAMES, *known])
    raise ValueError(f"no family, size or folder is called {name!r}; {near if near.startswith('did') else 'see weft families'}")


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


def refuse(out: Path) -> None:
    """Only a new, an empty or a model folder is written to: a slip of the finger must not cost anyone's files."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give a folder to write")
    held = {p.name for p in out.iterdir()} if out.exists() else set()
    if held and not (held & {"config.json", "weft.json"} and any(name.endswith(".safetensors") for name in held)):
        raise ValueError(f"{out} is not empty and holds no model; give a new or an empty folder")


def inside(folder: Path, spec: "Model") -> dict[str, Any]:
    """What a model folder holds; the loaded spec counts, since tensors may say more than a config (a head that is not tied)."""
    from .interop.describe import describe
    family = describe(folder)[0]
    files = {p.name: p.stat().st_size for p in sorted(folder.iterdir()) if p.is_file()}
    return {"folder": str(folder), "layout": "hf" if family else "weft", "family": family.name if family else None,
            "parameters": spec.parameters(), "files": files}


# Out loud

def console(stderr: bool = False) -> "Console":
    from rich.console import Console
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False)


def tell(args: argparse.Namespace, plain: Any, page: Callable[[int], Any]) -> None:
    """JSON for programs, a page for people."""
    if args.json:
        print(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        screen = console()
        screen.print(page(screen.width))


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A spinner on a terminal's stderr, once it takes long."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Timer
    status = console(stderr=True).status(text)
    timer = Timer(PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


# The command

def parser() -> Parser:
    top = Parser(prog="weft", description="Every Transformer, woven from one block.", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB")

    def verb(run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser:
        made = verbs.add_parser(run.__name__, help=text, description=f"{text[0].upper()}{text[1:]}. {more}", allow_abbrev=False)
        made.add_argument("--json", action="store_true", help="print JSON")
        made.set_defaults(run=run)
        return made

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
    return top


def read(words: list[str]) -> argparse.Namespace:
    """The arguments; a verb or an option that does not exist gets the nearest that does."""
    verbs = ["families", "show", "verify", "convert"]
    if words and not words[0].startswith("-") and words[0] not in verbs:
        from .values import suggest
        raise ValueError(f"no verb {words[0]!r}; {suggest(words[0], verbs)}")
    args, rest = parser().parse_known_args(words)
    if rest:
        from .values import suggest
        options = ["--help", *(["--json"] if args.verb else ["--version"]), *(["--to"] if args.verb == "convert" else [])]
        raise ValueError(f"{args.verb or 'the command'} does not know {rest[0]!r}; {suggest(rest[0], options)}")
    return args


def main(words: list[str] | None = None) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")         # a terminal without × still gets the rest
    try:
        args = read(sys.argv[1:] if words is None else words)
        if args.verb is None:
            parser().print_help()
            return 0
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:                # the reader, such as head, has seen enough; rich leaves with 1 too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:
        print("weft:", " ".join(str(error).split()), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
