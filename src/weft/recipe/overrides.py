"""`--set path=value`: changes a value by dotted paths. All changes are applied first, then the
result is checked once.

Beside the fields of a value, a path may contain `*` (every item), `length` of a list or `depth` of
a stack (its blocks repeat), and `norm` of a block or branch (pre, post or sandwich).
"""

import json
from dataclasses import fields
from typing import Any, TypeVar

from ..support.console import Report
from ..support.registry import CHOICES
from ..support.synonyms import places_of, suggest
from ..support.values import from_plain, nearest_path, to_plain

T = TypeVar("T")
DEEPEST = 10_000  # the longest list that a repetition makes
BRANCHES = ("attention", "cross_attention", "feedforward")
# Which place of a branch holds its norm: `pre`, `post` and `sandwich` of spec.py
PLACEMENT_TEXT = {
    "pre": "before each branch",
    "post": "after each residual sum",
    "sandwich": "before and after each branch",
}
PLACEMENTS = {"pre": ("before",), "post": ("after",), "sandwich": ("before", "out")}


def apply_overrides(value: T, overrides: list[str], report: Report = lambda line: None) -> T:
    """Apply each `path=value`: a number, true, null, "text", a list, or the name of a choice such
    as CosineSchedule.
    """
    if not overrides:
        return value
    tree = to_plain(value)
    for word in overrides:
        path, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not all(path.split(".")):
            raise ValueError(
                f"--set {word} is not a path and a value; give path=value, such as --set "
                "optimiser.lr=3e-4"
            )
        try:
            tree = edit_plain(tree, path.split("."), text, "", report)
        except UnknownPath as error:
            where, near = error.args
            whole = nearest_path(value, path)
            if whole and not near.startswith("did you mean"):
                near = f"did you mean {whole!r}?"
            raise ValueError(f"--set {word}: {where}; {suggest_path(tree, path) or near}") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"--set {word}: {error}") from None
    try:
        changed: T = from_plain(tree)
    except ValueError as error:
        words = [f"--set {word}" for word in faulty_overrides(value, overrides, str(error))]
        raise ValueError(f"{' '.join(words)}: {error}") from None
    return changed


def faulty_overrides(value: Any, overrides: list[str], message: str) -> list[str]:
    """Return the fewest overrides that together give this error: one, unless several conflict."""

    def gives_error(words: list[str]) -> bool:
        try:
            apply_overrides(value, words)
        except ValueError as error:
            return str(error).endswith(f": {message}")
        return False

    needed = overrides
    for word in overrides if len(overrides) > 1 else ():
        fewer = [other for other in needed if other is not word]
        needed = fewer if gives_error(fewer) else needed
    return needed


class UnknownPath(ValueError):
    """An unknown field: where, and the known ones."""


def suggest_path(tree: Any, path: str) -> str:
    """Return the path for a word of another library, if this recipe has it."""
    for place in places_of(path.rpartition(".")[2]):
        if "=" in place and path_exists(tree, place.partition("=")[0].split(".")):
            return f"did you mean {place}?"
    return ""


def path_exists(tree: Any, names: list[str]) -> bool:
    try:
        edit_plain(tree, names, "pre" if names[-1] == "norm" else "1", "", lambda line: None)
    except ValueError:
        return False
    return True


def edit_plain(tree: Any, names: list[str], text: str, here: str, report: Report) -> Any:
    """Return what `to_plain` wrote, with the parts at a path replaced; `here` is the path so
    far.
    """
    if not names:
        return parse_value(text, tree)
    name = names[0]
    rest = names[1:]
    there = f"{here}.{name}".lstrip(".")
    if isinstance(tree, list):
        return edit_list(tree, name, rest, text, here, report)
    if not isinstance(tree, dict):
        raise ValueError(
            f"{there} does not exist: {here} is {json.dumps(tree)}, which has no fields; set {here}"
        )
    kind = str(tree.get("kind"))
    if name == "norm" and not rest and ("attention" in tree or "inner" in tree):
        return move_norm(tree, text, here)
    if name == "depth" and not rest and "blocks" in tree:
        return edit_plain(tree, ["blocks", "length"], text, here, report)
    field_names = [f.name for f in fields(CHOICES[kind])] if kind in CHOICES else []
    if name not in field_names:
        raise UnknownPath(
            f"{f'{here} ({kind})' if here else kind} has no field {name!r}",
            suggest(name, field_names),
        )
    if name == "norm" and not rest and text in PLACEMENTS:
        inside = "stages.*.*" if "stages" in tree else "blocks.*"
        raise ValueError(
            f"{there} is the final norm; set the position of the blocks' norms with "
            f"{here}.{inside}.norm={text}"
        )
    changed = tree | {name: edit_plain(tree.get(name), rest, text, there, report)}
    return (
        adjust_final_norm(tree, changed, text, here, report)
        if rest[-1:] == ["norm"] and name in ("blocks", "stages")
        else changed
    )


def edit_list(
    items: list[Any], name: str, rest: list[str], text: str, here: str, report: Report
) -> list[Any]:
    if name == "*":
        return [edit_plain(item, rest, text, f"{here}.{i}", report) for i, item in enumerate(items)]
    if name == "length" and not rest:
        return repeat_blocks(items, text, here)
    if not name.isdecimal() or int(name) >= len(items):
        raise ValueError(
            f"{here}.{name} does not exist: {here} has {len(items)} items; give an index from 0 to "
            f"{len(items) - 1}, or * for all"
        )
    i = int(name)
    return [*items[:i], edit_plain(items[i], rest, text, f"{here}.{name}", report), *items[i + 1 :]]


def parse_value(text: str, old: Any) -> Any:
    if text in CHOICES and not isinstance(old, str):
        value = {"kind": text}
        return [value] if isinstance(old, list) else value
    try:
        new = json.loads(text)
    except json.JSONDecodeError:
        one_of_texts = isinstance(old, list) and all(isinstance(item, str) for item in old)
        return [text] if one_of_texts and old else text
    if type(new) is float and type(old) is int and new.is_integer():
        return int(new)  # 1e5 steps
    return float(new) if type(new) is int and isinstance(old, float) else new


def repeat_blocks(items: list[Any], text: str, here: str) -> list[Any]:
    """Return as many items as `text` says, by repeating their pattern. What does not occur twice is
    no pattern.
    """
    if not text.isdecimal() or not 0 < int(text[:9]) <= DEEPEST:
        raise ValueError(
            f"{here}.length = {text[:40]!r} must be a whole number from 1 to {DEEPEST:,}"
        )
    period = next(
        (
            p
            for p in range(1, len(items) // 2 + 1)
            if all(item == items[i % p] for i, item in enumerate(items))
        ),
        None,
    )
    if len(items) == 1:
        period = 1
    if period is None:
        raise ValueError(
            f"{here}: the {len(items)} blocks have no repeating pattern, so another length is "
            "ambiguous; define the blocks in the recipe"
        )
    scaled = [
        name
        for name in BRANCHES
        for item in items[:1]
        if (item.get(name) or {}).get("residual_scale", 1) != 1
    ]
    if scaled:
        raise ValueError(
            f"{here}.0.{scaled[0]}.residual_scale is DeepNorm's for {len(items)} blocks, not for "
            f"{text}; set the depth in the recipe with weft.deepnorm_scales"
        )
    return [items[i % period] for i in range(int(text))]


def move_norm(tree: dict[str, Any], text: str, here: str) -> dict[str, Any]:
    """Move the norm of a branch, or of every branch of a block, in x <- after(x * residual_scale +
    out(inner(before(x)))).
    """
    if text not in PLACEMENTS:
        raise ValueError(f"{here}.norm = {text!r} must be one of {', '.join(PLACEMENTS)}")
    if "inner" not in tree:
        return tree | {
            name: move_norm(tree[name], text, f"{here}.{name}")
            for name in BRANCHES
            if tree.get(name)
        }
    norm = next((tree[place] for place in ("before", "after", "out") if tree.get(place)), None)
    if norm is None:
        raise ValueError(
            f"{here} has no norm to move; give one, such as --set {here}.before=LayerNorm"
        )
    moved = {
        place: norm if place in PLACEMENTS[text] else None for place in ("before", "out", "after")
    }
    # those are DeepNorm's
    return (
        tree
        | moved
        | ({"residual_scale": 1.0, "init_gain": 1.0} if tree.get("residual_scale", 1) != 1 else {})
    )


def last_feedforward(stack: dict[str, Any]) -> dict[str, Any]:
    branch: dict[str, Any] = (stack["blocks"] if "blocks" in stack else stack["stages"][-1])[-1][
        "feedforward"
    ]
    return branch


def adjust_final_norm(
    before: dict[str, Any], stack: dict[str, Any], text: str, here: str, report: Report
) -> dict[str, Any]:
    """Add a final norm if no norm follows the last sum, else remove it (Xiong et al. 2020,
    arXiv:2002.04745).
    """
    last = last_feedforward(stack)
    if last == last_feedforward(before) or text not in PLACEMENTS:
        return stack
    norm = None if last["after"] else stack.get("norm") or last["before"]
    if norm:
        change = "stays" if stack.get("norm") else "is added"
    else:
        change = "is removed" if stack.get("norm") else "is not needed"
    report(f"{here}: norms {PLACEMENT_TEXT[text]}; the final norm {here}.norm {change}")
    return stack | {"norm": norm}
