"""The command `weft`: one verb, one function. Nothing heavy is imported before its verb needs it."""
import argparse
import os
import signal
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import NoReturn

import weft

from .commands import STOPPED, asking, evaluating, generating, models, training, tuning


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def parser() -> Parser:
    top = Parser(prog="weft", description="Every Transformer, woven from one block.", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB")

    def verb(run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser:
        made = verbs.add_parser(run.__name__, help=text, description=f"{text[0].upper()}{text[1:]}. {more}", allow_abbrev=False)
        made.add_argument("--json", action="store_true", help="print JSON")
        made.set_defaults(run=run)
        return made

    for kind in (models, training, tuning, generating, asking, evaluating):
        kind.add(verb)
    return top


def read(words: list[str]) -> argparse.Namespace:
    """The arguments; a verb or an option that does not exist gets the nearest that does."""
    from .words import option, suggest
    top = parser()
    verbs = next(a.choices for a in top._actions if isinstance(a, argparse._SubParsersAction))
    if words and not words[0].startswith("-") and words[0] not in verbs:
        raise ValueError(f"no verb {words[0]!r}; {suggest(words[0], list(verbs))}")
    args, rest = top.parse_known_args(words)
    end = rest.index("--") if "--" in rest else len(rest)
    rest, plain = rest[:end], rest[end + 1:]               # behind two dashes all is text
    if hasattr(args, "texts"):             # argparse takes texts before the first option only
        args.texts += [word for word in rest if not word.startswith("-")] + plain
        rest, plain = [word for word in rest if word.startswith("-")], []
    if getattr(args, "prompt", "") is None and (plain or (rest and not rest[0].startswith("-"))):      # and no prompt after one
        args.prompt = (plain or rest).pop(0)
    rest += plain
    if rest and getattr(args, "prompt", None) is not None and not rest[0].startswith("-"):
        raise ValueError(f"{rest[0]!r} is a second prompt; generate goes on from one here, and from many by --in FILE")
    if rest:
        known = [o for a in (verbs[args.verb] if args.verb else top)._actions for o in a.option_strings if o.startswith("--")]
        verb = args.verb or "the command"
        raise ValueError(f"{verb} has no option {rest[0].partition('=')[0]!r}; {option(rest[0], known)}" if rest[0].startswith("-") else
                         f"{verb} does not take {rest[0]!r}; see weft {args.verb or ''} --help")
    return args


def leave(*_: object) -> None:
    """SIGTERM while nothing is under way that could be lost; during training, `train.signals` has it."""
    os.write(2, b"weft: stopped; to go on, run it again\n")
    os._exit(STOPPED)


def main(words: list[str] | None = None) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")         # a terminal without × still gets the rest
    args = None
    try:
        args = read(sys.argv[1:] if words is None else words)
        if args.verb is None:
            parser().print_help()
            return 0
        if words is None and args.verb in ("train", "resume", "tune"):
            signal.signal(signal.SIGTERM, leave)
        code: int = args.run(args)
        sys.stdout.flush()
        if words is None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)    # it is over, and the exit code says how
        return code
    except KeyboardInterrupt:
        if args is not None and args.verb in ("prepare", "train", "resume", "tune"):
            print("weft: stopped; to go on, run it again", file=sys.stderr)
        return 130
    except BrokenPipeError:                # the reader, such as head, has seen enough; rich leaves with 1 too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, RuntimeError) as error:
        print("weft:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except MemoryError:
        print("weft: out of memory; give it less to do at once, or a machine with more", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
