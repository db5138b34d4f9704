"""The command `weft`: one function per command. Heavy packages are imported on use."""

import argparse
import os
import signal
import sys
from functools import partial
from io import TextIOWrapper
from typing import NamedTuple

from .commands import EXIT_STOPPED
from .commands.train_options import ResumeOptions
from .commands.verbs import Verb, all_verbs, parser
from .support.options.command_line import command_fields, option_names, options_from
from .support.options.shared import VerbOptions


class Call(NamedTuple):
    """A parsed command line: the command and its options."""

    verb: Verb
    options: VerbOptions


def parse_arguments(arguments: list[str]) -> Call | None:
    """Parse the arguments; None without any. An error for an unknown command or option suggests the
    closest name."""
    from .support.synonyms import suggest_verb

    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    verbs = {verb.name: verb for verb in all_verbs()}
    if arguments and not arguments[0].startswith("-") and arguments[0] not in verbs:
        raise ValueError(f"unknown command {arguments[0]!r}; {suggest_verb(arguments[0], verbs)}")
    args, rest = parser().parse_known_args(arguments)
    rest = take_texts(args, rest)
    verb = verbs.get(args.verb)
    if rest:
        refuse_rest(args, verb, rest[0])
    if verb is None:
        return None
    options = options_from(verb.options, args)
    assert isinstance(options, VerbOptions)
    return Call(verb, options)


def take_texts(args: argparse.Namespace, rest: list[str]) -> list[str]:
    """Take texts, files and prompts that follow an option, where argparse takes none, and return
    the remaining words."""
    end = rest.index("--") if "--" in rest else len(rest)
    # After two dashes everything is text
    plain = rest[end + 1 :]
    rest = rest[:end]
    option = "data" if args.verb == "new" else None
    if hasattr(args, "texts"):
        option = "texts"
    if option is not None:
        getattr(args, option).extend([word for word in rest if not word.startswith("-")] + plain)
        return [word for word in rest if word.startswith("-")]
    if getattr(args, "prompt", "") is None and (plain or (rest and not rest[0].startswith("-"))):
        args.prompt = (plain or rest).pop(0)
    rest += plain
    if rest and getattr(args, "prompt", None) is not None and not rest[0].startswith("-"):
        raise ValueError(
            f"{rest[0]!r} is a second prompt; give one prompt, or several with --input FILE"
        )
    return rest


def refuse_rest(args: argparse.Namespace, verb: Verb | None, word: str) -> None:
    """Raise ValueError for a word that no option takes."""
    from .support.synonyms import suggest_option

    names = ["--help", "--version"]
    if verb is not None:
        fields = command_fields(verb.options)
        names = ["--help", *(name for field in fields for name in option_names(field))]
    options = [name for name in names if name.startswith("--")]
    name = verb.name if verb else "the command"
    refuse_common_mistakes(args, name, word)
    if word.startswith("-"):
        unknown = word.partition("=")[0]
        raise ValueError(f"{name} has no option {unknown!r}; {suggest_option(word, options)}")
    if "--data" in options:
        raise ValueError(f"{name} does not take {word!r}; give files with --data")
    raise ValueError(f"{name} does not take {word!r}; see weft {args.verb or ''} --help")


def refuse_common_mistakes(args: argparse.Namespace, verb: str, word: str) -> None:
    """Raise ValueError for common mistakes in a word that argparse did not parse."""
    incomplete = next((path for path in getattr(args, "set", []) if "=" not in path), None)
    if incomplete is not None and not word.startswith("-"):
        raise ValueError(f"--set {incomplete}: give --set {incomplete}={word}")
    if getattr(args, "set", []) and "=" in word and not word.startswith("-"):
        raise ValueError(f"{word}: give --set before each change: --set {word}")
    if word.startswith("--resume") and verb == "train":
        raise ValueError("the same command resumes a run; repeat it, or use weft resume RUN")
    if word == "--data" and verb in ("prepare", "new"):
        raise ValueError(f"{verb} takes files as positional arguments; remove --data")


RESUMABLE = ("prepare", "train", "resume", "tune")
CONTINUES = "weft: stopped; run the same command to continue"


def stop_message(call: Call) -> str:
    """Return the message for a command stopped by a signal."""
    if isinstance(call.options, ResumeOptions) and call.options.verify:
        return (
            f"weft: stopped before verification ended; {call.options.run_folder} is unchanged; "
            "run the same command to start over"
        )
    return CONTINUES if call.verb.name in RESUMABLE else ""


def exit_on_sigterm(*_: object, message: str = CONTINUES) -> None:
    """Handle SIGTERM outside training, where `training.signals` does."""
    os.write(2, f"{message}\n".encode())
    os._exit(EXIT_STOPPED)


def run_verb(call: Call) -> int:
    """Import user code, then run the command."""
    if call.options.code:
        from .support.user_code import load_code

        load_code(list(call.options.code))
    return call.verb.run(call.options)


def set_up_process(is_command: bool) -> None:
    """Set process options before PyTorch starts its threads, and make output safe for the
    terminal."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # replace characters that the terminal lacks
    if is_command:
        # Waiting threads sleep: spinning ones would take a core from working threads if another
        # program runs.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def main(arguments: list[str] | None = None) -> int:
    set_up_process(is_command=arguments is None)
    call = None
    try:
        call = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        if call is None:
            parser().print_help()
            return 0
        if arguments is None and call.verb.name in ("train", "resume", "tune"):
            signal.signal(signal.SIGTERM, partial(exit_on_sigterm, message=stop_message(call)))
        code = run_verb(call)
        sys.stdout.flush()
        if arguments is None:
            # the command has ended; keep its exit code
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return code
    except KeyboardInterrupt:
        if call is not None and (message := stop_message(call)):
            print(message, file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, closed the pipe; rich also exits with 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, RuntimeError) as error:
        print("weft:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except MemoryError:
        print(
            "weft: out of memory; reduce the batch size or the length, or use a machine with more",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
