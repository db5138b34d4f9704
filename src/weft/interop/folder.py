"""Folders: `load` and `save`. Safetensors and JSON only; nothing is unpickled, nothing outside the folder is named."""
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .. import spec as S
from ..data.members import TABLE, member
from ..model.model import Model, shapes_of
from ..model.start import begin, number
from ..weights import Family, Row, write_labels
from .beside import CODE, TOKENIZER, carry, complete, special_ids, unnamed, without, write
from .bounds import check_header, check_parameters
from .convert import Foreign, accuse, export_weights, import_weights, is_fresh, kinds_of, names
from .describe import CONFIG, SPEC, describe
from .hub import fetch
from .manifest import publish, write_manifest
from .modules import modules_of, scoring
from .parse import parse
from .rewrite import find_family

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
STALE = {"transformers_version", "_name_or_path", "torch_dtype"}


def load(where: str | Path, *, head: Any = None, fresh: Iterable[str] = (), device: str | torch.device = "cpu",
         dtype: torch.dtype | None = torch.float32, seed: int = 0) -> Model:
    """The model of a folder or hub name, in Hugging Face's layout or ours. `head` puts on another head, given or
    named as a published class ("BertForSequenceClassification", two classes);
    `fresh` names the parts that may start anew, such as {"head"}; dtype None keeps the file's."""
    folder, anew = fetch(where), {fresh} if isinstance(fresh, str) else set(fresh)
    family, spec = describe(folder)
    if isinstance(head, str):
        head = (family or find_family(spec).family).head(head, spec)
    if head is not None:
        spec = S.replace(spec, head=head)
    with ExitStack() as open_files:
        foreign = read_tensors(folder, open_files)
        if family is not None and isinstance(spec.head, S.Classes):
            foreign = with_dense(foreign, family, spec, folder, open_files)
        check_parameters(folder, spec, foreign.size, anew)
        if family is not None and "head" not in anew:
            spec = untie(family, spec, foreign)
        model = fill(family, spec, foreign, anew, device, dtype or dtype_of(foreign, family), seed, folder)
    model.family, model.origin = family.name if family else None, folder.resolve()
    return model.eval()


def dtype_of(foreign: Foreign, family: Family | None) -> torch.dtype:
    """What a file's numbers are stored in; float32 where a row works on them, so that the way back gives the same."""
    if family is not None and any(isinstance(row, Row) and row.how == "less_one" for row in family.table):
        return torch.float32
    return foreign.get(min(foreign.names)).dtype


def fill(family: Family | None, spec: S.Model, foreign: Foreign, anew: set[str], device: str | torch.device, dtype: torch.dtype,
         seed: int, folder: Path) -> Model:
    model = shapes_of(spec).to(dtype)
    try:
        model.to_empty(device=device)
    except (RuntimeError, MemoryError):
        raise ValueError(f"{folder}: {spec.parameters():,} parameters of {dtype} do not fit into memory") from None
    state = model.state_dict()
    unknown = [f for f in anew if not any(is_fresh(n, {f}) for n in state)]
    if unknown:
        raise ValueError(f"fresh={set(unknown)}: the model has no such part; it has {', '.join(sorted({n.split('.')[0] for n in state}))}")
    with torch.no_grad():
        if family is None:
            wanted = {n for n in state if not is_fresh(n, anew)}
            left = {n for n in foreign.names - wanted if not is_fresh(n, anew)}
            if left or wanted - foreign.names:
                raise ValueError(f"{folder}: {accuse(sorted(left), sorted(wanted - foreign.names))}")
            pairs: Iterable[tuple[str, Tensor]] = ((n, foreign.get(n)) for n in wanted)
        else:
            pairs = import_weights(family, spec, {n: t.shape for n, t in state.items()}, foreign, anew)
        for name, tensor in pairs:
            if tensor.shape != state[name].shape or not tensor.is_floating_point():
                raise ValueError(f"{folder}: {name} is {tuple(tensor.shape)} of {tensor.dtype}, not {tuple(state[name].shape)} of floats")
            state[name].copy_(tensor)
        for name in state:
            if is_fresh(name, anew):
                begin(name, state[name], spec, torch.Generator(state[name].device).manual_seed(number(seed, name)))
    return model


def untie(family: Family, s: S.Model, foreign: Foreign) -> S.Model:
    """Whether a head is tied, the tensors decide: a config may say it is where the file holds another table (T5 v1.1)."""
    if not isinstance(s.head, S.Vocabulary) or not s.head.tied:
        return s
    rows = {names(row.ours): names(row.theirs)[0] for row in family.table
            if isinstance(row, Row) and (not row.when or "Vocabulary" in row.when.split())}
    head, table = rows.get(("head.out.weight",)), rows.get(("source.tokens.weight",))
    if head not in foreign.names or table not in foreign.names or torch.equal(foreign.get(head), foreign.get(table)):
        return s
    return S.replace(s, head=S.replace(s.head, tied=False))


def read_tensors(folder: Path, open_files: ExitStack, under: str = "") -> Foreign:
    """One file, or shards named by an index; only siblings of the index are opened. `under`: those of a folder inside, as "2_Dense/"."""
    if member(folder, under + INDEX):
        index = parse(folder, under + INDEX, TABLE).get("weight_map")
        for file in index.values() if isinstance(index, dict) else [index]:
            if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
                raise ValueError(f"{folder / under / INDEX} names {file!r}; only .safetensors files beside it may be named")
    elif member(folder, under + WEIGHTS):
        index = None
    else:
        old = [p.name for p in folder.glob("*.bin")] + [p.name for p in folder.glob("*.pt")]
        way_out = f"; {old[0]} is a pickle, which Weft never opens: convert it to safetensors first" if old else ""
        raise ValueError(f"{folder / under} holds no {WEIGHTS}{way_out}")
    paths = {file: member(folder, under + file) for file in (sorted(set(index.values())) if index is not None else [WEIGHTS])}
    handles = {file: open_tensors(path or folder / under / file, open_files) for file, path in paths.items()}
    where: dict[str, str] = {}
    for file, handle in handles.items():
        where |= dict.fromkeys(handle.keys(), file)
    lost = sorted(set(index or ()) - set(where))
    if lost:
        raise ValueError(f"{folder / under / INDEX} names tensors that its files do not hold: {', '.join(lost[:12])}")

    def get(name: str) -> Tensor:
        try:
            found: Tensor = handles[where[name]].get_tensor(name)
        except Exception as error:         # of a type that torch does not have
            raise ValueError(f"{folder / under / where[name]}: {name} cannot be read: {error}") from None
        return found
    return Foreign(set(where), get, sum(path.stat().st_size for path in paths.values() if path))


def open_tensors(path: Path, open_files: ExitStack) -> Any:
    try:
        check_header(path)
        return open_files.enter_context(safe_open(path, "pt"))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def with_dense(foreign: Foreign, family: Family, s: S.Model, folder: Path, open_files: ExitStack) -> Foreign:
    """A CrossEncoder's linear map, which lies in a folder of its own, under the name that the family's table has for it."""
    found = modules_of(folder) if not any("classifier" in name or "score" in name for name in foreign.names) else None
    if found is None or found.dense is None:
        return foreign
    apart = read_tensors(folder, open_files, f"{found.dense}/")
    rows = {names(row.ours)[0]: names(row.theirs)[0] for row in family.table
            if isinstance(row, Row) and (not row.when or kinds_of(s) & set(row.when.split()))}
    own = {rows.get(f"head.out.{kind}", kind): f"linear.{kind}" for kind in ("weight", "bias") if f"linear.{kind}" in apart.names}
    return Foreign(foreign.names | set(own), lambda name: apart.get(own[name]) if name in own else foreign.get(name),
                   foreign.size + apart.size)


def save(model: Model, folder: str | Path, *, to: str = "hf", shard: int = 5_000_000_000, tokenizer: str | None = None) -> Path:
    """Write a model: `to="hf"` as the published layout of its family, `to="weft"` under our own names, with a manifest of SHA-256s.
    `tokenizer` is the text of its tokenizer.json, where that is not carried over from the folder that the model was loaded from."""
    if to not in ("hf", "weft"):
        raise ValueError(f"to={to!r}; give 'hf' or 'weft'")
    folder = Path(folder)
    state = {n: t.detach() for n, t in model.state_dict().items()}
    spec = model.spec
    if to == "hf" and (carried := unnamed(model.origin)) is not None:
        spec = special_ids(spec, carried.special)
    leaving = find_family(spec, model.family) if to == "hf" else None
    with new_folder(folder), TemporaryDirectory(prefix=".weft-", dir=folder) as made:      # whole, before it takes an older one's place
        new = Path(made)
        if leaving is None:
            write_tensors({n: t.contiguous().cpu() for n, t in state.items()}, new, shard)
            (new / SPEC).write_text(spec.json() + "\n", encoding="utf-8")
        else:
            theirs = export_weights(leaving.family, leaving.spec, leaving.state(state), isinstance(leaving.spec.head, S.Features))
            write_tensors({n: t.cpu() for n, t in theirs.items()}, new, shard)
            write(new / CONFIG, config_of(leaving.family, leaving.spec, model) | {"dtype": str(next(iter(state.values())).dtype)[6:]})
            if isinstance(spec.head, S.Classes) and isinstance(leaving.spec.head, S.Features):
                write_scoring(spec, state, new)
        if model.origin is not None:
            carry(model.origin, new, spec)
        if tokenizer is not None:
            (new / TOKENIZER).write_text(tokenizer, "utf-8")
        if leaving is not None:
            complete(new, leaving.spec, ours=model.family is None)
        else:
            write_manifest(new)
        written = publish(new, folder)
    for old in (*folder.glob("model-?????-of-?????.safetensors"), *(folder / n for n in (WEIGHTS, INDEX, CONFIG, SPEC))):
        if old.relative_to(folder) not in written:
            old.unlink(missing_ok=True)
    return folder


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """The folder, made with its parents where they are missing; after an error those that are still empty are gone again."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for path in missing:
                path.rmdir()
        raise


def config_of(family: Family, spec: S.Model, model: Model) -> dict[str, Any]:
    """Its config.json: what the origin's said beside what the spec says, but never a way to run code."""
    kept = parse(model.origin, CONFIG) if model.origin is not None and member(model.origin, CONFIG) else {}
    kept = without(CODE | STALE, kept) if kept.get("model_type") == family.model_type else {}
    return kept | family.write(spec) | write_labels(model.spec.head)


def write_scoring(spec: S.Model, state: dict[str, Tensor], folder: Path) -> None:
    """A head for which transformers has no class, as sentence-transformers' CrossEncoder has it."""
    assert isinstance(spec.head, S.Classes)
    learned = getattr(spec.source, "positions", None)
    for file, plain in scoring(spec.head, spec.width, getattr(learned, "count", spec.context)).items():
        write(folder / file, plain)
    linear = {name.replace("head.out", "linear"): t.contiguous().cpu() for name, t in state.items() if name.startswith("head.out.")}
    save_file(linear, folder / "2_Dense" / WEIGHTS, metadata={"format": "pt"})


def write_tensors(state: dict[str, Tensor], folder: Path, shard: int) -> None:
    shards: list[dict[str, Tensor]] = [{}]
    room = shard
    for name, tensor in state.items():
        if tensor.nbytes > room and shards[-1]:
            shards.append({})
            room = shard
        shards[-1][name] = tensor
        room -= tensor.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / WEIGHTS, metadata={"format": "pt"})
        return
    where = {}
    for i, part in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        where.update(dict.fromkeys(part, file))
    total = sum(t.nbytes for t in state.values())
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2) + "\n", encoding="utf-8")
