"""Views of a model on one input: attention maps, the logit lens, and image views from the
papers."""

import os
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.images.images import to_image
from ..data.reading.formats.image_folder import IMAGE_SUFFIXES
from ..data.tokenizing.tokenizer import Tokenizer
from ..generate.text_generator import TextGenerator
from ..nn.heads import Detections
from ..nn.loaded_model import LoadedModel
from ..nn.model import Model
from ..observe.draw import filter_picture, scatter_svg, similarity_picture
from ..observe.lens import logit_lens
from ..observe.panels import AttentionPanel, DetectedObject, LensPanel, Observation, Picture
from ..observe.record import Recording, attention_panels, record
from ..observe.vision import attention_distance, patch_filters, position_similarity
from ..tasks.predict import default_row_length, device_of
from .detect import box_inside, detect
from .images import ImageInput, ImagePreprocess, evaluation_transforms, image_store
from .methods import SingleTextPreprocess, encode_with_masks, label_names
from .reconstruct import contact_sheet, reconstruct

SENTENCE = "The animal did not cross the street because it was too tired."
TOP = 5  # words per position of the lens
LENS_POSITIONS = 48  # limits the width of the page and the cost of a large vocabulary
SURE = 0.5  # minimum score of a shown object; if none has it, the first few are shown
FEW = 5
SMALL_SIDE = 224  # pixels, for views of one image


@torch.no_grad()
def look(
    model: LoadedModel,
    example: str | ImageInput | None = None,
    target: str | None = None,
    bf16: bool = False,
) -> Observation:
    """Return all views of a model on one input.

    Args:
        model: a model of any family.
        example: a text, or, for an image model, a file, its bytes or a PIL image (default: a
            sentence; for images, only views without input: filters and positions).
        target: the decoder's input of an encoder-decoder (default: the generated text).
        bf16: compute in bfloat16 (default: False).
    """
    with torch.autocast(device_of(model.model).type, torch.bfloat16, enabled=bf16):
        if model.reads_images:
            return look_at_image(model, example)
        return look_at_text(model, check_text(model, example), target)


def check_text(model: LoadedModel, example: str | ImageInput | None) -> str:
    if example is not None and not isinstance(example, str):
        raise ValueError(f"{model.name} reads text, not {type(example).__name__}; give a text")
    if example is not None:
        if names_file(example):
            raise ValueError(
                f"{model.name} reads text, and {example} is a file name; "
                "give the text itself, or an image model"
            )
        return example
    words = SENTENCE.split()  # shortened to a small model's length
    while len(words) > 1 and count_tokens(model, " ".join(words)) > default_row_length(model.model):
        words.pop()
    return " ".join(words)


def names_file(text: str) -> bool:
    """Return whether a text is the name of a file, or has the suffix of an image."""
    if os.path.isfile(text):
        return True
    return text.lower().endswith(IMAGE_SUFFIXES) and not any(map(str.isspace, text))


def count_tokens(model: LoadedModel, text: str) -> int:
    """Return the number of tokens of a text with its special tokens."""
    frame = SingleTextPreprocess(model)
    return len(frame.before) + len(model.require_tokenizer.encode(text)) + len(frame.after)


# Text


def look_at_text(model: LoadedModel, text: str, target: str | None) -> Observation:
    source_ids, target_ids = encode_example(model, text, target)
    device = device_of(model.model)
    tokenizer = model.require_tokenizer
    rows = [torch.tensor([ids], device=device) for ids in (source_ids, target_ids) if ids]
    with record(model.model) as recording:
        run_stacks(model.model, *rows)
    source, targets = (
        tuple(token_label(tokenizer, i) for i in ids) for ids in (source_ids, target_ids)
    )
    return Observation(
        model.name,
        tokenizer.decode(source_ids) + (f" → {tokenizer.decode(target_ids)}" if targets else ""),
        attention_panels(model.model, recording, source, targets),
        lens_panel(model, recording, targets or source),
    )


def run_stacks(model: Model, source_BL: Tensor, target_BM: Tensor | None = None) -> None:
    """Run everything but the head, which the lens applies where needed."""
    sequence = model.embed(source_BL)
    if model.encoder is None:
        model.decode(sequence)
        return
    memory = model.encode(sequence)
    if model.decoder is not None:
        model.decode(model.embed_target(target_BM, memory), memory)


def encode_example(
    model: LoadedModel, text: str, target: str | None
) -> tuple[list[int], list[int]]:
    """Return the tokens of the source and, for an encoder-decoder, of the target, with the special
    tokens of training."""
    spec = model.model.spec
    tokenizer = model.require_tokenizer
    if target is not None and (spec.encoder is None or spec.decoder is None):
        raise ValueError(f"{model.name} reads one text; remove the target")
    limit = default_row_length(model.model)
    if spec.decoder is None:
        frame = SingleTextPreprocess(model)
        mask = tokenizer.special.get("mask")
        ids = tokenizer.encode(text) if mask is None else encode_with_masks(tokenizer, text, mask)
        source_ids = [*frame.before, *map(int, ids), *frame.after]
    else:
        source_ids = TextGenerator(model).encode_prompt(text)
    if not source_ids:
        raise ValueError(f"the text is empty, and {model.name} adds no special tokens; give a text")
    if len(source_ids) > limit:
        raise ValueError(
            f"the text has {len(source_ids)} tokens; {model.name} reads at most {limit}; "
            "give a shorter text"
        )
    if spec.decoder is None or spec.encoder is None:
        return source_ids, []
    generator = TextGenerator(model)
    if target is not None:
        return source_ids, [generator.start(), *map(int, tokenizer.encode(target))]
    room = generator.max_new_tokens(source_ids, None, 2 * len(source_ids) + 10)
    tokens = generator.generate([source_ids], max_new_tokens=room)[0][0].tokens.tokens
    return source_ids, [
        generator.start(),
        *(token for token in tokens if token not in generator.ends),
    ]


def token_label(tokenizer: Tokenizer, token: int) -> str:
    """Return the readable text of a token; word-piece marks are kept and spaces made visible."""
    piece = tokenizer.inner.id_to_token(token)
    text = tokenizer.decode([token])
    if piece is None or (text.strip() and "\ufffd" not in text and not piece.startswith("##")):
        return text if tokenizer.table is not None else text.strip() or str(token)
    for mark, sign in (("Ġ", "␣"), ("▁", "␣"), ("Ċ", "⏎"), ("\n", "⏎"), (" ", "␣")):
        piece = piece.replace(mark, sign)
    return str(piece)


def lens_panel(
    model: LoadedModel, recording: Recording, tokens: tuple[str, ...]
) -> LensPanel | None:
    """Return the most likely words of every layer at the last positions, or the classes; None for a
    head without probabilities."""
    head = model.model.spec.head
    states = recording.states
    if not states:
        return None
    if isinstance(head, S.LMHead | S.TokenClassifierHead):  # these heads read single positions
        states = [replace(state, x_BLD=state.x_BLD[:, -LENS_POSITIONS:]) for state in states]
        tokens = tokens[-LENS_POSITIONS:]
    names = label_names(model) if not isinstance(head, S.LMHead) else None

    def word(index: int) -> str:
        return names[index] if names is not None else token_label(model.require_tokenizer, index)

    layers = []
    for logits in logit_lens(model.model, states):
        if logits.shape[-1] == 1:  # regression has no probabilities
            return None
        logits_LV = logits[0] if logits.dim() == 3 else logits
        best = logits_LV.float().softmax(-1).topk(min(TOP, logits_LV.shape[-1]))
        layers.append(
            tuple(
                tuple((word(index), p) for index, p in zip(indices, shares, strict=True))
                for indices, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            )
        )
    return LensPanel(tokens if len(layers[0]) == len(tokens) else ("class",), tuple(layers))


# Images


def look_at_image(model: LoadedModel, image: ImageInput | None) -> Observation:
    pictures = tuple(static_pictures(model))
    if image is None:
        if not pictures:
            raise ValueError(f"{model.name} reads images; give an image file")
        return Observation(
            model.name, "filters and positions, which need no image", (), None, None, (), pictures
        )
    detects = isinstance(model.model.spec.head, S.DetectionHead)
    with record(model.model) as recording:
        if detects:
            detect(model, [image], 0.0)
        else:
            model.model(read_image(model, image))
    assert recording.inputs is not None
    objects = detected_objects(model, recording) if detects else ()
    queries = object_labels(model, objects)
    panels = attention_panels(
        model.model, recording, getattr(model.model.spec.source, "extra_tokens", ()), queries
    )
    return Observation(
        model.name,
        str(image) if isinstance(image, str) else "",
        panels,
        None if detects else lens_panel(model, recording, ()),
        to_image(recording.inputs[0].float().cpu().numpy(), normalisation(model)),
        objects,
        (*image_pictures(model, image, panels), *pictures),
    )


def normalisation(model: LoadedModel) -> R.Normalize:
    """Return the normalisation of the model's input pixels."""
    return next(
        (step for step in evaluation_transforms(model) if isinstance(step, R.Normalize)),
        R.Normalize(mean=(0.0,), std=(1.0,)),
    )


def read_image(model: LoadedModel, image: ImageInput) -> Tensor:
    """Return one image as in validation, (1, C, R, S)."""
    store = image_store(model, [image])
    preprocess = ImagePreprocess(model, store)
    samples = preprocess.open_samples(store, 1, include_partial=True)
    # Validation uses no randomness
    pixels_CRS = preprocess(samples, 0, None)["image"]  # type: ignore[arg-type]
    return torch.from_numpy(pixels_CRS)[None].to(device_of(model.model), model.model.dtype)


def detected_objects(model: LoadedModel, recording: Recording) -> tuple[DetectedObject, ...]:
    """Return the highest-scoring objects of the recorded image with their queries."""
    detections = recording.output
    head = model.model.spec.head
    assert isinstance(detections, Detections)
    assert isinstance(head, S.DetectionHead)
    # If every layer has a loss, the head reads all layers; the last one is the prediction
    logits_NV, boxes_N4 = (t.float().flatten(0, -3)[-1] for t in detections)
    share_NV = logits_NV.sigmoid() if head.scores == "sigmoid" else logits_NV.softmax(-1)[:, :-1]
    best = share_NV.max(-1)
    order = best.values.argsort(descending=True).tolist()
    sure = [query for query in order if best.values[query] >= SURE] or order[:FEW]
    names = label_names(model)
    boxes = boxes_N4.tolist()
    objects = []
    for query in sure:
        x, y, width, height = boxes[query]
        label = names[int(best.indices[query])]
        corner = (x - width / 2, y - height / 2, width, height)
        box = box_inside(corner, 1, 1)
        objects.append(DetectedObject(query, label, float(best.values[query]), box))
    return tuple(objects)


def object_labels(model: LoadedModel, objects: tuple[DetectedObject, ...]) -> tuple[str, ...]:
    """Return the label of each object query: its object, or its number."""
    by_query = {thing.query: f"{thing.label} {thing.score:.2f}" for thing in objects}
    count = model.model.spec.queries if objects else 0
    return tuple(by_query.get(query, f"query {query + 1}") for query in range(count))


def image_pictures(
    model: LoadedModel, image: ImageInput, panels: tuple[AttentionPanel, ...]
) -> Iterator[Picture]:
    """Yield the papers' views of one image: attention distance, and a masked autoencoder's
    reconstruction."""
    if isinstance(model.model.spec.head, S.PixelDecoder):
        rebuilt = reconstruct(model, [image])
        sheet = contact_sheet(rebuilt, max(1, round(SMALL_SIDE / rebuilt[0].original.width)))
        caption = (
            "The image, its visible patches, and the rebuilt image; "
            f"mean squared error of a hidden pixel {rebuilt[0].error:.3f}."
        )
        yield Picture("Reconstruction", caption, sheet)
    distances = [
        attention_distance(weight_HLM, panel.key_grid[:2], panel.key_grid.extra).tolist()
        for panel in panels
        if panel.kind.startswith("encoder") and panel.key_grid and "rollout" not in panel.kind
        for weight_HLM in panel.maps
    ]
    if distances:
        caption = "Mean attention distance of a patch, one point per head, in patches of its layer."
        yield Picture("Attention distance", caption, scatter_svg(distances, "layer", "patches"))


def static_pictures(model: LoadedModel) -> Iterator[Picture]:
    """Yield the views of a patch model without an image: filters and positions."""
    filters = patch_filters(model.model)
    similarity = position_similarity(model.model)
    if filters is not None:
        caption = "Principal components of the filters that embed a patch, the largest first."
        yield Picture("Patch filters", caption, filter_picture(filters))
    if similarity is not None:
        caption = (
            "At each patch, the cosine similarities of its position embedding with those of all "
            "patches; white is the maximum."
        )
        side = round(len(similarity) ** 0.5)
        yield Picture("Position embeddings", caption, similarity_picture(similarity, side))
