"""`weft completion`: scripts for shells, written from the parser, so that they know every verb, option and choice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from ..options.command_line import command_fields, help_text, option_names
from ..options.declare import Option, OptionField
from ..options.shared import VerbOptions

RUNS = "runs/*"  # where runs are unless --output says otherwise
FISH_RUNS = f"for run in {RUNS}; echo $run; end"
SPEC_VERBS = ("show", "plan")  # whose NAME may be an architecture
DEMO_VERBS = ("show", "verify", "export", "generate", "embed", "evaluate", "look", "tune")


class Completion(NamedTuple):
    """An option of a verb, and the words that may follow it."""

    flags: tuple[str, ...]
    takes_value: bool
    words: tuple[str, ...]
    help: str


class Verb(NamedTuple):
    """A verb, its options, and the words that its arguments may be, beside files."""

    name: str
    help: str
    options: list[Completion]
    words: tuple[str, ...]
    # a run or a model
    takes_run: bool


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(VerbOptions):
    """The options of `weft completion`."""

    shell: Annotated[
        Literal["bash", "zsh", "fish"], Option("shell to complete in", positional=True)
    ]


def completion(options: CompletionOptions) -> int:
    """Print a completion script for a shell.

    For bash, add eval "$(weft completion bash)" to ~/.bashrc; the scripts of zsh and fish begin with the way to load them.
    """
    print(SHELLS[options.shell](describe_verbs()), end="")
    return 0


# What there is to complete


def describe_verbs() -> list[Verb]:
    from ..families import families
    from ..recipe import Logger
    from ..registry import members
    from .verbs import all_verbs

    sizes = tuple(f"{family.name}-{size}" for family in families() for size in family.sizes)
    by_field = {
        "device": ("auto", "cpu", "cuda", "mps"),
        "log_to": tuple(kind.name for kind in members(Logger)),
    }
    described = []
    for verb in all_verbs():
        options = [Completion(("-h", "--help"), False, (), "show this help message and exit")]
        words: list[str] = []
        for field in command_fields(verb.options):
            choices = field.choices or by_field.get(field.name, ())
            if field.option.positional:
                words += [*choices, *argument_words(verb.name, field, sizes)]
            else:
                options.append(completion_of(field, choices))
        takes_run = any(map(is_model, command_fields(verb.options)))
        described.append(Verb(verb.name, verb.help, options, tuple(words), takes_run))
    return described


def completion_of(field: OptionField, choices: tuple[str, ...]) -> Completion:
    return Completion(option_names(field), field.type is not bool, choices, help_text(field))


def is_model(field: OptionField) -> bool:
    names = ("NAME", "CHECKPOINT", "RUN", "IN", "FOLDER")
    return field.option.positional and field.option.metavar in names


def argument_words(verb: str, field: OptionField, sizes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the models that an argument may name."""
    if not is_model(field):
        return ()
    return sizes * (verb in SPEC_VERBS) + ("demo",) * (verb in DEMO_VERBS)


def value_cases(verbs: list[Verb]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield `VERB OPTION` and the words after it."""
    for verb in verbs:
        for option in verb.options:
            if option.words:
                yield from ((f"{verb.name} {flag}", option.words) for flag in option.flags)


def flags_of(verb: Verb) -> str:
    return " ".join(flag for option in verb.options for flag in option.flags)


# Scripts


def bash_script(verbs: list[Verb]) -> str:
    names = " ".join(verb.name for verb in verbs)
    values = "\n".join(
        f'        "{case}") words="{" ".join(words)}" ;;' for case, words in value_cases(verbs)
    )
    options = "\n".join(f'        {verb.name}) options="{flags_of(verb)}" ;;' for verb in verbs)
    arguments = "\n".join(
        f'        {verb.name}) words="{" ".join(verb.words)}" runs={int(verb.takes_run)} ;;'
        for verb in verbs
        if verb.words or verb.takes_run
    )
    return f"""# weft: eval "$(weft completion bash)" in ~/.bashrc
_weft() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" verb="${{COMP_WORDS[1]}}" words="" options="" run runs=0
    local before="${{COMP_WORDS[COMP_CWORD - 1]}}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{names} --help --version" -- "$current"))
        return
    fi
    case "$verb $before" in
{values}
    esac
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        return
    fi
    case "$verb" in
{options}
    esac
    if [ "${{current:0:1}}" = "-" ]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
        return
    fi
    case "$verb" in
{arguments}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    local IFS=$'\\n'  # names of files may have spaces, and compgen -W would expand them
    if [ "$runs" -eq 1 ]; then
        for run in {RUNS}; do
            if [ -e "$run" ] && [ "${{run:0:${{#current}}}}" = "$current" ]; then COMPREPLY+=("$run"); fi
        done
    fi
    COMPREPLY+=($(compgen -f -- "$current"))
}}
complete -o filenames -F _weft weft
"""


def zsh_script(verbs: list[Verb]) -> str:
    names = " ".join(verb.name for verb in verbs)
    values = "\n".join(
        f'        ("{case}") compadd -- {" ".join(words)}; return ;;'
        for case, words in value_cases(verbs)
    )
    options = "\n".join(f"        ({verb.name}) compadd -- {flags_of(verb)} ;;" for verb in verbs)
    arguments = "\n".join(
        f"        ({verb.name}) compadd -- {' '.join(verb.words)}{f' {RUNS}(N)' if verb.takes_run else ''} ;;"
        for verb in verbs
        if verb.words or verb.takes_run
    )
    return f"""#compdef weft
# weft: eval "$(weft completion zsh)" in ~/.zshrc, after compinit
_weft() {{
    if (( CURRENT == 2 )); then
        compadd -- {names} --help --version
        return
    fi
    case "$words[2] $words[CURRENT-1]" in
{values}
    esac
    if [[ $PREFIX == -* ]]; then
        case $words[2] in
{options}
        esac
        return
    fi
    case $words[2] in
{arguments}
    esac
    _files
}}
compdef _weft weft
"""


def fish_script(verbs: list[Verb]) -> str:
    lines = ["# weft: weft completion fish > ~/.config/fish/completions/weft.fish"]
    lines.append("complete -c weft -n __fish_use_subcommand -f -l help -l version")
    for verb in verbs:
        lines.append(
            f"complete -c weft -n __fish_use_subcommand -f -a {verb.name} -d {quote(verb.help)}"
        )
        seen = f"complete -c weft -n '__fish_seen_subcommand_from {verb.name}'"
        if verb.words:
            lines.append(f"{seen} -a {quote(' '.join(verb.words))}")
        if verb.takes_run:
            lines.append(f"{seen} -a '({FISH_RUNS})'")
        for option in verb.options:
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                for flag in option.flags
            )
            value = (
                f" -x -a {quote(' '.join(option.words))}" if option.words else " -r"
            ) * option.takes_value
            lines.append(f"{seen} {flags}{value} -d {quote(option.help.partition(' (default')[0])}")
    return "\n".join(lines) + "\n"


def quote(text: str) -> str:
    """Quote for fish, whose single quotes know two escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SHELLS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
