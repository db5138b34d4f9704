"""Folders: `load` and `save`. Safetensors and JSON only; nothing is unpickled, nothing outside the folder is named."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .. import spec as S
from ..data.folder_files import MAX_TABLE_BYTES, find_file
from ..families.base import Family, write_labels
from ..families.weights import WeightRow
from ..model.initialisation import initialise_weights
from ..model.model import Model, build_on_meta
from ..recipe import ChatTemplate, Transform
from .bounds import check_header, check_parameters
from .companion_files import (
    CHAT_TEMPLATE,
    CODE_KEYS,
    TOKENIZER,
    add_missing_files,
    copy_companion_files,
    tokenizer_without_config,
    with_special_ids,
    without_keys,
    write_json,
)
from .convert import (
    ForeignTensors,
    as_tuple,
    describe_unmatched,
    export_weights,
    import_weights,
    is_new,
    part_kinds,
)
from .describe import CONFIG_FILE, read_folder
from .equivalent_specs import find_family
from .hub import local_folder
from .image_processor import IMAGES, image_processor_config
from .json_files import read_json_object
from .manifest import SPEC_FILE, publish_folder, write_manifest
from .sentence_transformers import cross_encoder_files, read_modules

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
STALE_KEYS = {"transformers_version", "_name_or_path", "torch_dtype"}


def load(
    where: str | Path,
    *,
    head: Any = None,
    new_parts: Iterable[str] = (),
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = torch.float32,
    seed: int = 0,
) -> Model:
    """The model of a folder or hub name, in Hugging Face's layout or ours. `head` puts on another head, given or
    named as a published class ("BertForSequenceClassification", two classes);
    `new_parts` names the parts that may be initialised instead of loaded, such as {"head"}; dtype None keeps that of the file."""
    folder, initialised_parts = (
        local_folder(where),
        {new_parts} if isinstance(new_parts, str) else set(new_parts),
    )
    family, spec = read_folder(folder)
    if isinstance(head, str):
        head = (family or find_family(spec).family).head_of_class(head, spec)
    if head is not None:
        spec = S.replace(spec, head=head)
    with ExitStack() as open_files:
        foreign = read_tensors(folder, open_files)
        if family is not None and isinstance(spec.head, S.ClassifierHead):
            foreign = with_cross_encoder_map(foreign, family, spec, folder, open_files)
        check_parameters(folder, spec, foreign.size, initialised_parts)
        if family is not None and "head" not in initialised_parts:
            spec = untie_if_separate(family, spec, foreign)
        model = fill_model(
            family,
            spec,
            foreign,
            initialised_parts,
            device,
            dtype or dtype_of(foreign, family),
            seed,
            folder,
        )
    model.family, model.origin = family.name if family else None, folder.resolve()
    return model.eval()


def dtype_of(foreign: ForeignTensors, family: Family | None) -> torch.dtype:
    """What a file's numbers are stored in; float32 where a row works on them, so that the way back gives the same."""
    if family is not None and any(
        isinstance(row, WeightRow) and row.transform == "less_one" for row in family.table
    ):
        return torch.float32
    return foreign.get(min(foreign.names)).dtype


def fill_model(
    family: Family | None,
    spec: S.Spec,
    foreign: ForeignTensors,
    new_parts: set[str],
    device: str | torch.device,
    dtype: torch.dtype,
    seed: int,
    folder: Path,
) -> Model:
    model = build_on_meta(spec).to(dtype)
    try:
        model.to_empty(device=device)
    except (RuntimeError, MemoryError):
        raise ValueError(
            f"{folder}: {spec.parameter_count():,} parameters of {dtype} do not fit into memory"
        ) from None
    state = model.state_dict()
    unknown = [f for f in new_parts if not any(is_new(n, {f}) for n in state)]
    if unknown:
        raise ValueError(
            f"new_parts={set(unknown)}: the model has no such part; it has {', '.join(sorted({n.split('.')[0] for n in state}))}"
        )
    with torch.no_grad():
        if family is None:
            expected = {n for n in state if not is_new(n, new_parts)}
            left = {n for n in foreign.names - expected if not is_new(n, new_parts)}
            if left or expected - foreign.names:
                raise ValueError(
                    f"{folder}: {describe_unmatched(sorted(left), sorted(expected - foreign.names))}"
                )
            pairs: Iterable[tuple[str, Tensor]] = ((n, foreign.get(n)) for n in expected)
        else:
            pairs = import_weights(
                family, spec, {n: t.shape for n, t in state.items()}, foreign, new_parts
            )
        for name, tensor in pairs:
            if tensor.shape != state[name].shape or not tensor.is_floating_point():
                raise ValueError(
                    f"{folder}: {name} is {tuple(tensor.shape)} of {tensor.dtype}, not {tuple(state[name].shape)} of floats"
                )
            state[name].copy_(tensor)
        initialise_weights(model, spec, seed, {name for name in state if is_new(name, new_parts)})
    return model


def untie_if_separate(family: Family, spec: S.Spec, foreign: ForeignTensors) -> S.Spec:
    """Whether a head is tied, the tensors decide: a config may say it is where the file holds another table (T5 v1.1)."""
    if not isinstance(spec.head, S.LMHead) or not spec.head.tied:
        return spec
    rows = {
        as_tuple(row.ours): as_tuple(row.theirs)[0]
        for row in family.table
        if isinstance(row, WeightRow) and (not row.only_for or "LMHead" in row.only_for.split())
    }
    head, table = rows.get(("head.out.weight",)), rows.get(("source.tokens.weight",))
    if (
        head not in foreign.names
        or table not in foreign.names
        or torch.equal(foreign.get(head), foreign.get(table))
    ):
        return spec
    return S.replace(spec, head=S.replace(spec.head, tied=False))


def read_tensors(folder: Path, open_files: ExitStack, under: str = "") -> ForeignTensors:
    """One file, or shards named by an index; only siblings of the index are opened. `under`: those of a folder inside, as "2_Dense/"."""
    if find_file(folder, under + INDEX):
        index = read_json_object(folder, under + INDEX, MAX_TABLE_BYTES).get("weight_map")
        for file in index.values() if isinstance(index, dict) else [index]:
            if (
                not isinstance(file, str)
                or Path(file).name != file
                or not file.endswith(".safetensors")
            ):
                raise ValueError(
                    f"{folder / under / INDEX} names {file!r}; only .safetensors files beside it may be named"
                )
    elif find_file(folder, under + WEIGHTS):
        index = None
    else:
        old = [p.name for p in folder.glob("*.bin")] + [p.name for p in folder.glob("*.pt")]
        way_out = (
            f"; {old[0]} is a pickle, which Weft never opens: convert it to safetensors first"
            if old
            else ""
        )
        raise ValueError(f"{folder / under} holds no {WEIGHTS}{way_out}")
    paths = {
        file: find_file(folder, under + file)
        for file in (sorted(set(index.values())) if index is not None else [WEIGHTS])
    }
    handles = {
        file: open_tensors(path or folder / under / file, open_files)
        for file, path in paths.items()
    }
    where: dict[str, str] = {}
    for file, handle in handles.items():
        where |= dict.fromkeys(handle.keys(), file)
    lost = sorted(set(index or ()) - set(where))
    if lost:
        raise ValueError(
            f"{folder / under / INDEX} names tensors that its files do not hold: {', '.join(lost[:12])}"
        )

    def get(name: str) -> Tensor:
        try:
            tensor: Tensor = handles[where[name]].get_tensor(name)
        except Exception as error:  # of a type that torch does not have
            raise ValueError(
                f"{folder / under / where[name]}: {name} cannot be read: {error}"
            ) from None
        return tensor

    return ForeignTensors(
        set(where), get, sum(path.stat().st_size for path in paths.values() if path)
    )


def open_tensors(path: Path, open_files: ExitStack) -> Any:
    try:
        check_header(path)
        return open_files.enter_context(safe_open(path, "pt"))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def with_cross_encoder_map(
    foreign: ForeignTensors, family: Family, spec: S.Spec, folder: Path, open_files: ExitStack
) -> ForeignTensors:
    """A CrossEncoder's linear map, which lies in a folder of its own, under the name that the family's table has for it."""
    modules = (
        read_modules(folder)
        if not any("classifier" in name or "score" in name for name in foreign.names)
        else None
    )
    if modules is None or modules.dense is None:
        return foreign
    dense_tensors = read_tensors(folder, open_files, f"{modules.dense}/")
    rows = {
        as_tuple(row.ours)[0]: as_tuple(row.theirs)[0]
        for row in family.table
        if isinstance(row, WeightRow)
        and (not row.only_for or part_kinds(spec) & set(row.only_for.split()))
    }
    dense_names = {
        rows.get(f"head.out.{kind}", kind): f"linear.{kind}"
        for kind in ("weight", "bias")
        if f"linear.{kind}" in dense_tensors.names
    }
    return ForeignTensors(
        foreign.names | set(dense_names),
        lambda name: (
            dense_tensors.get(dense_names[name]) if name in dense_names else foreign.get(name)
        ),
        foreign.size + dense_tensors.size,
    )


def save(
    model: Model,
    folder: str | Path,
    *,
    to: str = "hf",
    shard: int = 5_000_000_000,
    tokenizer: str | None = None,
    transforms: Sequence[Transform] | None = None,
    chat_template: ChatTemplate | None = None,
) -> Path:
    """Write a model: `to="hf"` as the published layout of its family, `to="weft"` under our own names, with a manifest of SHA-256s.
    `tokenizer` is the text of its tokenizer.json, `transforms` are what it sees of an image in evaluation, and `chat_template` is how its
    conversations are written, where these are not carried over from the folder that the model was loaded from."""
    if to not in ("hf", "weft"):
        raise ValueError(f"to={to!r}; give 'hf' or 'weft'")
    folder = Path(folder)
    state = {n: t.detach() for n, t in model.state_dict().items()}
    spec = model.spec
    if to == "hf" and (carried := tokenizer_without_config(model.origin)) is not None:
        spec = with_special_ids(spec, carried.special)
    export_plan = find_family(spec, model.family) if to == "hf" else None
    with (
        new_folder(folder),
        TemporaryDirectory(prefix=".weft-", dir=folder) as temporary,
    ):  # whole, before it takes an older one's place
        new = Path(temporary)
        if export_plan is None:
            write_tensors({n: t.contiguous().cpu() for n, t in state.items()}, new, shard)
            (new / SPEC_FILE).write_text(spec.to_json() + "\n", encoding="utf-8")
        else:
            theirs = export_weights(
                export_plan.family,
                export_plan.spec,
                export_plan.export_state(state),
                isinstance(export_plan.spec.head, S.NoHead),
            )
            write_tensors({n: t.cpu() for n, t in theirs.items()}, new, shard)
            write_json(
                new / CONFIG_FILE,
                merged_config(export_plan.family, export_plan.spec, model)
                | {"dtype": str(next(iter(state.values())).dtype)[6:]},
            )
            if isinstance(spec.head, S.ClassifierHead) and isinstance(
                export_plan.spec.head, S.NoHead
            ):
                write_cross_encoder(spec, state, new)
        if model.origin is not None:
            copy_companion_files(model.origin, new, spec)
        if tokenizer is not None:
            (new / TOKENIZER).write_text(tokenizer, "utf-8")
        if chat_template is not None:
            (new / CHAT_TEMPLATE).write_text(chat_template.to_jinja(), "utf-8")
        if transforms is not None and isinstance(spec.source, S.Patches):
            write_json(new / IMAGES, image_processor_config(spec.source, transforms))
        if export_plan is not None:
            add_missing_files(new, export_plan.spec, ours=model.family is None)
        else:
            write_manifest(new)
        written = publish_folder(new, folder)
    for old in (
        *folder.glob("model-?????-of-?????.safetensors"),
        *(folder / n for n in (WEIGHTS, INDEX, CONFIG_FILE, SPEC_FILE)),
    ):
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


def merged_config(family: Family, spec: S.Spec, model: Model) -> dict[str, Any]:
    """Return config.json: the fields of the original beside those of the spec, but never one that runs code."""
    origin_config = (
        read_json_object(model.origin, CONFIG_FILE)
        if model.origin is not None and find_file(model.origin, CONFIG_FILE)
        else {}
    )
    origin_config = (
        without_keys(CODE_KEYS | STALE_KEYS, origin_config)
        if origin_config.get("model_type") == family.model_type
        else {}
    )
    return origin_config | family.to_config(spec) | write_labels(model.spec.head)


def write_cross_encoder(spec: S.Spec, state: dict[str, Tensor], folder: Path) -> None:
    """A head for which transformers has no class, as sentence-transformers' CrossEncoder has it."""
    assert isinstance(spec.head, S.ClassifierHead)
    learned = getattr(spec.source, "positions", None)
    for file, plain in cross_encoder_files(
        spec.head, spec.width, getattr(learned, "count", spec.context_length)
    ).items():
        write_json(folder / file, plain)
    linear = {
        name.replace("head.out", "linear"): t.contiguous().cpu()
        for name, t in state.items()
        if name.startswith("head.out.")
    }
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
    (folder / INDEX).write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2) + "\n",
        encoding="utf-8",
    )
