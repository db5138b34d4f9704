"""The command `weft`: one verb, one function. Nothing heavy is imported before its verb needs it."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from typing import NoReturn

import weft

from .commands import (
    EXIT_STOPPED,
    compare,
    completion,
    detect,
    doctor,
    evaluate,
    generate,
    look,
    models,
    new,
    plan,
    predict,
    probe,
    quickstart,
    reconstruct,
    train,
    tune,
)


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def parser() -> Parser:
    top = Parser(
        prog="weft", description="Every Transformer, woven from one block.", allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB")

    def verb(
        run: Callable[[argparse.Namespace], int], text: str, more: str = ""
    ) -> argparse.ArgumentParser:
        parser = verbs.add_parser(
            run.__name__,
            help=text,
            description=f"{text[0].upper()}{text[1:]}. {more}",
            allow_abbrev=False,
        )
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--code",
            action="append",
            default=[],
            metavar="FILE",
            help="Python file with parts of your own, imported first (repeatable)",
        )
        parser.set_defaults(run=run)
        return parser

    for kind in (
        models,
        plan,
        train,
        tune,
        generate,
        predict,
        detect,
        evaluate,
        probe,
        look,
        compare,
        reconstruct,
        quickstart,
        new,
        doctor,
        completion,
    ):
        kind.add(verb)
    verbs.choices["completion"].set_defaults(parsers=verbs.choices)
    return top


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments; the error for an unknown verb or option names the nearest one."""
    from .synonyms import suggest_option, suggest_verb

    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    top = parser()
    verbs = next(a.choices for a in top._actions if isinstance(a, argparse._SubParsersAction))
    if arguments and not arguments[0].startswith("-") and arguments[0] not in verbs:
        raise ValueError(f"no verb {arguments[0]!r}; {suggest_verb(arguments[0], verbs)}")
    args, rest = top.parse_known_args(arguments)
    end = rest.index("--") if "--" in rest else len(rest)
    rest, plain = rest[:end], rest[end + 1 :]  # after two dashes everything is text
    if hasattr(args, "texts"):  # argparse takes texts before the first option only
        args.texts += [word for word in rest if not word.startswith("-")] + plain
        rest, plain = [word for word in rest if word.startswith("-")], []
    if getattr(args, "prompt", "") is None and (
        plain or (rest and not rest[0].startswith("-"))
    ):  # and no prompt after one
        args.prompt = (plain or rest).pop(0)
    rest += plain
    if rest and getattr(args, "prompt", None) is not None and not rest[0].startswith("-"):
        raise ValueError(
            f"{rest[0]!r} is a second prompt; generate takes one here, or many with --input FILE"
        )
    if rest:
        option_names = [
            o
            for a in (verbs[args.verb] if args.verb else top)._actions
            for o in a.option_strings
            if o.startswith("--")
        ]
        verb = args.verb or "the command"
        refuse_common_mistakes(args, verb, rest[0])
        raise ValueError(
            f"{verb} has no option {rest[0].partition('=')[0]!r}; {suggest_option(rest[0], option_names)}"
            if rest[0].startswith("-")
            else f"{verb} does not take {rest[0]!r}; give files with --data"
            if "--data" in option_names
            else f"{verb} does not take {rest[0]!r}; see weft {args.verb or ''} --help"
        )
    return args


def refuse_common_mistakes(args: argparse.Namespace, verb: str, word: str) -> None:
    """Raise ValueError for a word that argparse left over and whose meaning is plain."""
    incomplete = next((path for path in getattr(args, "set", []) if "=" not in path), None)
    if incomplete is not None and not word.startswith("-"):
        raise ValueError(f"--set {incomplete}: write --set {incomplete}={word}")
    if getattr(args, "set", []) and "=" in word and not word.startswith("-"):
        raise ValueError(f"{word}: write --set before each change, here --set {word}")
    if word == "--data" and verb in ("prepare", "new"):
        raise ValueError(f"{verb} takes its files without an option; leave --data out")


CONTINUES = "weft: stopped; run it again to continue"


def stop_message(args: argparse.Namespace) -> str:
    """Return what to print when a signal stops a verb."""
    if args.verb == "resume" and args.verify:
        return f"weft: stopped; nothing is verified, and {args.run_folder} is unchanged; run it again to start over"
    return CONTINUES if args.verb in ("prepare", "train", "resume", "tune", "quickstart") else ""


def exit_on_sigterm(*_: object, message: str = CONTINUES) -> None:
    """Handle SIGTERM outside training; inside, `training.signals` does."""
    os.write(2, f"{message}\n".encode())
    os._exit(EXIT_STOPPED)


def run_verb(args: argparse.Namespace) -> int:
    """Import the user's own parts, then run the verb."""
    if args.code:
        from .user_code import load_code

        load_code(args.code)
    code: int = args.run(args)
    return code


def set_up_process(is_command: bool) -> None:
    """Set what must be set before PyTorch starts its threads, and what a terminal cannot print."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without × still gets the rest
    if is_command:
        # Waiting threads sleep: where another program has a core, those that spin keep the working ones from it.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def main(arguments: list[str] | None = None) -> int:
    set_up_process(is_command=arguments is None)
    args = None
    try:
        args = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        if args.verb is None:
            parser().print_help()
            return 0
        if arguments is None and args.verb in ("train", "resume", "tune"):
            signal.signal(signal.SIGTERM, partial(exit_on_sigterm, message=stop_message(args)))
        code = run_verb(args)
        sys.stdout.flush()
        if arguments is None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is over, and the exit code says how
        return code
    except KeyboardInterrupt:
        if args is not None and (message := stop_message(args)):
            print(message, file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough; rich leaves with 1 too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, RuntimeError) as error:
        print("weft:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except MemoryError:
        print(
            "weft: out of memory; give it less to do at once, or a machine with more",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
