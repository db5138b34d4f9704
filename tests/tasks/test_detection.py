"""Detection: matching and losses equal transformers', and settings that silently break detectors
are rejected.
"""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode
from transformers import DabDetrConfig, DetrConfig
from transformers.loss.loss_deformable_detr import DeformableDetrForObjectDetectionLoss
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.images.boxes import BoxSamples, relative_boxes
from weft.data.images.images import decode
from weft.metrics.detection import coco_ground_truth, coco_results, detection_metrics
from weft.nn.heads import Detections
from weft.nn.kernels.cross_entropy import IGNORE_INDEX
from weft.nn.kernels.keyed_random import sample_numbers
from weft.nn.model import build
from weft.recipe.data.cells import check_box_units, check_boxes
from weft.spec.count import parameter_shapes
from weft.tasks import build_task
from weft.tasks.base import Batch
from weft.tasks.detection_denoising import noise_objects
from weft.testing import small_store

from .made import batch, rows
from .scenes import LABELS, detector, scenes


def built(task: R.Detection | None = None, spec: S.Spec | None = None) -> Any:
    """A task in fp64, and a row per scene."""
    store = scenes()
    made = build_task(
        task or R.Detection(), spec or detector(), store.meta, seed=1, dtype=torch.float64
    )
    made.loss.eval()
    given = rows(made.preprocess, made.preprocess.open_samples(store, 32, include_partial=True))
    return made, given


def random_answer(
    layers: int,
    images: int,
    queries: int,
    seed: int = 0,
    counts: tuple[int, ...] = (),
    classes: int = 4,
) -> tuple[Detections, Batch]:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(layers, images, queries, classes, generator=g, dtype=torch.float64)
    boxes = torch.rand(layers, images, queries, 4, generator=g, dtype=torch.float64) * 0.5 + 0.2
    M = max(counts, default=0)
    labels = torch.randint(0, 3, (images, M), generator=g)
    for i, count in enumerate(counts):
        labels[i, count:] = IGNORE_INDEX
    truth = torch.rand(images, M, 4, generator=g, dtype=torch.float64) * 0.4 + 0.2
    return Detections(logits.requires_grad_(), boxes.requires_grad_()), {
        "labels": labels,
        "boxes": truth,
    }


@pytest.mark.parametrize("counts", [(2, 0, 3), (0, 0, 0), (1, 1, 1), (7, 2, 0)])
@pytest.mark.parametrize("auxiliary", [True, False])
@pytest.mark.parametrize("family", ["detr", "dab_detr"])
def test_the_loss_is_that_of_transformers(
    family: str, counts: tuple[int, ...], auxiliary: bool
) -> None:
    focal = family == "dab_detr"
    task = R.Detection(auxiliary_losses=auxiliary, class_cost=2.0 if focal else None)
    made, _ = built(task, detector(family))
    answer, given = random_answer(
        2 if auxiliary else 1, 3, 5, counts=counts, classes=3 if focal else 4
    )
    counted = made.preprocess.loss_counts({name: t.numpy() for name, t in given.items()})
    ours = sum(
        made.loss.weights[term] * value / max(counted[term], 1)
        for term, value in made.loss.loss_sums(answer, given).items()
    )
    targets = [
        {"class_labels": given["labels"][i, :n], "boxes": given["boxes"][i, :n]}
        for i, n in enumerate(counts)
    ]
    kind, score = (
        (DabDetrConfig, DeformableDetrForObjectDetectionLoss)
        if focal
        else (DetrConfig, ForObjectDetectionLoss)
    )
    config = kind(num_labels=3, auxiliary_loss=auxiliary, decoder_layers=2)
    logits = answer.logits_BNV
    boxes = answer.boxes_BN4
    # of the weights of the classes, which they make themselves
    torch.set_default_dtype(torch.float64)
    try:
        theirs, _, _ = score(
            logits[-1], targets, torch.device("cpu"), boxes[-1], config, logits, boxes
        )
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=1e-6, atol=1e-6)
    expected = torch.autograd.grad(theirs, (logits, boxes), retain_graph=True)
    for got, wanted in zip(torch.autograd.grad(ours, (logits, boxes)), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


def test_a_prediction_that_is_not_a_number_reaches_the_guard_and_not_scipy() -> None:
    made, _ = built(R.Detection(auxiliary_losses=False))
    answer, given = random_answer(1, 2, 5, counts=(1, 2))
    with torch.no_grad():
        answer.logits_BNV[0, 0] = float("nan")
    assert made.loss.loss_sums(answer, given)["class"].isnan()


def randomise(module: torch.nn.Module, *parts: str) -> None:
    """Add noise to what starts as a constant, which would hide what is wrong."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if any(part in name for part in parts):
                tensor.add_(torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype))


@pytest.mark.parametrize("norm", [S.FrozenBatchNorm(), S.GroupNorm(groups=2)])
@pytest.mark.parametrize("block", ["basic", "bottleneck"])
@pytest.mark.parametrize("stem_type", ["7x7", "3x3"])
def test_an_image_gives_the_same_alone_and_padded_in_a_batch(
    norm: Any, block: str, stem_type: str
) -> None:
    spec = detector(source={"norm": norm, "block": block, "stem_type": stem_type})
    made, given = built(spec=spec)
    randomise(made.loss, ".norm.")  # the identity would hide what leaks in from the padding
    with torch.no_grad():
        together = made.loss.forward_outputs(batch(made.preprocess, given))
        for i, row in enumerate(given):
            alone = made.loss.forward_outputs(batch(made.preprocess, [row]))
            for a, b in zip(alone, together, strict=True):
                torch.testing.assert_close(a[:, 0], b[:, i], rtol=1e-12, atol=1e-12)


def test_dropout_belongs_to_the_cells_of_an_image_and_not_to_its_padding() -> None:
    spec = detector()
    for path in (
        "attention.dropout",
        "attention.inner.dropout",
        "feedforward.dropout",
        "feedforward.inner.dropout",
    ):
        for block in ("encoder.blocks.0", "encoder.blocks.1", "decoder.blocks.0"):
            spec = S.replace_path(spec, f"{block}.{path}", 0.3)
    spec = S.replace_path(spec, "decoder.blocks.0.cross_attention.inner.dropout", 0.3)
    model = build(spec, seed=1, dtype=torch.float64).train()
    made, given = built()
    whole = batch(made.preprocess, given)

    def read(rows: Batch, numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        with sample_numbers(torch.tensor(numbers)), torch.no_grad():
            image = rows["image"].double()
            mask = rows.get("image_attention_mask")
            states = model.encode(model.embed(image, attention_mask=mask))
            found = model.decode(model.embed_target(None, states), states)
        kept = states.attention_mask_BL
        cells = states.x_BLD[-1] if kept is None else states.x_BLD[-1][kept[-1]]
        return cells, found.x_BLD[-1]

    for i in (0, 2, 4):
        together = read({name: t[: i + 1] for name, t in whole.items()}, list(range(i + 1)))
        alone = read(batch(made.preprocess, [given[i]]), [i])
        torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)


def test_padding_that_convolutions_see_changes_what_published_models_say() -> None:
    """The default keeps to the published behaviour; `masked` differs from it only where there is
    padding.
    """
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 32, 32, dtype=torch.bool)
    mask[1, :, 20:] = False
    images = images * mask[:, None]
    masked = detector()
    zeros = detector(source={"padding": "zeros"})
    a, b = (build(spec, seed=0).eval() for spec in (masked, zeros))
    with torch.no_grad():
        for model in (a, b):
            for module in model.modules():
                if type(module).__name__ == "FrozenBatchNorm":
                    module.bias.fill_(0.3)  # type: ignore[operator, union-attr]
        one, other = (m.embed(images, attention_mask=mask).x_BLD for m in (a, b))
        whole = [m.embed(images).x_BLD for m in (a, b)]
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[1], other[1])
    assert torch.equal(*whole)


def test_a_term_of_weight_nothing_is_no_term() -> None:
    made, given = built(R.Detection(l1_weight=0.0))
    sums = made.loss(batch(made.preprocess, given))
    assert set(sums) == {"class", "giou", "auxiliary_class", "auxiliary_giou"}
    with pytest.raises(ValueError, match="all weights are 0"):
        R.Detection(class_weight=0, l1_weight=0, giou_weight=0)


def test_auxiliary_losses_are_those_of_the_earlier_layers_through_the_same_norm_and_head() -> None:
    made, given = built()
    whole = batch(made.preprocess, given)
    model = made.loss.model
    with torch.no_grad():
        answer = made.loss.forward_outputs(whole)
        memory = model.encode(
            model.embed(whole["image"].double(), attention_mask=whole["image_attention_mask"])
        )
        queries = model.embed_target(None, memory)
        short = S.replace(
            model.spec, decoder=S.replace(model.spec.decoder, blocks=model.spec.decoder.blocks[:1])
        )
        first = build(short, dtype=torch.float64).eval()
        first.load_state_dict(model.state_dict(), strict=False)
        expected = first.read(first.decode(queries, memory))
        last = model.read(model.decode(queries, memory))
    assert len(answer.logits_BNV) == 2
    for layer, outputs in enumerate((expected, last)):
        torch.testing.assert_close(answer.logits_BNV[layer], outputs.logits_BNV)
        torch.testing.assert_close(answer.boxes_BN4[layer], outputs.boxes_BN4)


# Noised queries


def denoised() -> Any:
    task = R.Detection(denoising=R.DenoisingQueries(groups=3))
    made, given = built(task, detector("dab_detr"))
    randomise(made.loss, "box.2")
    return made, batch(made.preprocess, given)


def test_learned_queries_do_not_see_the_noised_ones() -> None:
    made, whole = denoised()
    with torch.no_grad():
        noised = made.loss.forward_outputs(whole)
        made.loss.noised_labels = None
        plain = made.loss.forward_outputs(whole)
    assert noised.logits_BNV.shape[2] == 5 + 3 * 3
    for a, b in zip(noised, plain, strict=True):
        torch.testing.assert_close(a[:, :, :5], b, rtol=1e-12, atol=1e-12)


def test_noised_queries_see_the_learned_ones() -> None:
    """DN-DETR, arXiv:2203.01305, section 4.4: its mask hides only what would tell the learned
    queries the answer.
    """
    made, whole = denoised()
    anchors = next(p for n, p in made.loss.named_parameters() if "anchor" in n)
    with torch.no_grad():
        before = made.loss.forward_outputs(whole).boxes_BN4[:, :, 5:]
        anchors.add_(torch.randn_like(anchors))
        after = made.loss.forward_outputs(whole).boxes_BN4[:, :, 5:]
    is_object = (whole["labels"] != IGNORE_INDEX).repeat_interleave(3, 1)
    assert (before - after)[-1][is_object].abs().min() > 0


def test_a_group_of_noised_queries_sees_no_other_and_no_padding() -> None:
    made, whole = denoised()
    changed = dict(whole)
    boxes = whole["noised_boxes"].clone().unflatten(-1, (3, 4))
    boxes[:, :, 1] = 0.3  # another version of every box
    padding = whole["labels"] == IGNORE_INDEX
    boxes[padding] = 0.7
    changed["noised_boxes"] = boxes.flatten(2)
    with torch.no_grad():
        before, after = (made.loss.forward_outputs(b).boxes_BN4[:, :, 5:] for b in (whole, changed))
    before, after = (t.unflatten(2, (3, 3))[:, ~padding] for t in (before, after))
    torch.testing.assert_close(before[:, :, [0, 2]], after[:, :, [0, 2]], rtol=1e-12, atol=1e-12)
    assert (before[:, :, 1] - after[:, :, 1]).abs().min() > 0


def test_noise_moves_boxes_within_its_bounds_and_changes_as_many_classes_as_it_says() -> None:
    task = R.DenoisingQueries(groups=500, shift=0.4, scale=0.3, label_flip=0.2)
    boxes = np.array([[0.5, 0.4, 0.2, 0.3], [0.9, 0.5, 0.2, 0.1]])
    row = noise_objects(boxes, np.array([1, 7]), 10, task, np.random.default_rng(0))
    noised = row["noised_boxes"].reshape(2, 500, 4)
    off = np.abs(noised - boxes[:, None])
    assert (off[..., :2] <= 0.2 * boxes[:, None, 2:] + 1e-6).all()
    assert (off[..., 2:] <= 0.3 * boxes[:, None, 2:] + 1e-6).all()
    assert (off.max(1) > 0.9 * np.tile(boxes[:, 2:], 2) * (0.2, 0.2, 0.3, 0.3)).all()
    changed = (row["noised_labels"] != [[1], [7]]).mean()
    assert abs(changed - 0.2 * 0.9) < 0.05
    assert row["noised_labels"].max() < 10


def test_denoising_is_refused_without_anchors_and_left_out_of_inference() -> None:
    task = R.Detection(denoising=R.DenoisingQueries())
    with pytest.raises(ValueError, match="denoising needs boxes as queries, not ObjectQueries"):
        build_task(task, detector(), scenes().meta)
    assert task.for_inference(R.ImagesWithBoxes()) == R.Detection(auxiliary_losses=False)


def test_anchors_start_where_they_are_and_each_layer_refines_the_one_before() -> None:
    spec = detector("dab_detr")
    model = build(spec, seed=3, dtype=torch.float64).eval()
    image = torch.randn(
        1, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        outputs = model(image)
        assert isinstance(outputs, Detections)
        anchors = model.target.anchors.weight.sigmoid()  # type: ignore[union-attr]
        torch.testing.assert_close(outputs.boxes_BN4[0], anchors)
        bias = torch.tensor([0.3, -0.2, 0.1, 0.4], dtype=torch.float64)
        model.head.box[-1].bias.copy_(bias)  # type: ignore[index, union-attr]
        moved = model(image)
    expected = (model.target.anchors.weight + 2 * bias).sigmoid()  # type: ignore[union-attr]
    torch.testing.assert_close(moved.boxes_BN4[0], expected)  # type: ignore[union-attr]


@pytest.mark.parametrize("block", ["basic", "bottleneck"])
def test_anchors_cost_what_the_spec_says(block: str) -> None:
    spec = detector("dab_detr", source={"block": block, "norm": S.GroupNorm(groups=2)})
    model = build(spec, device="meta").requires_grad_(False).eval()
    mask = torch.ones(2, 32, 32, dtype=torch.bool, device="meta")
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(2, 3, 32, 32, device="meta"), attention_mask=mask)
    assert spec.flops(batch=2, length=32) == counter.get_total_flops()
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert dict(parameter_shapes(spec)) == shapes


# DETR's ablations: where positions enter (table 3)


def attention_inputs(spec: S.Spec) -> dict[str, bool]:
    """Which attention is told positions, and whether the vectors at the input change with them."""
    model = build(spec, seed=0).eval()
    told: dict[str, bool] = {}
    for stack in ("encoder", "decoder"):
        block = getattr(model, stack).blocks[0]
        block.attention.inner.register_forward_pre_hook(
            lambda _, given, stack=stack: told.update(
                {f"{stack} self": given[2].position_BLD is not None}
            )
        )
    model.decoder.blocks[0].cross_attention.inner.register_forward_pre_hook(  # type: ignore[index, union-attr]
        lambda _, given: told.update(
            {
                "cross queries": given[2].position_BLD is not None,
                "cross keys": given[2].memory_position_BMD is not None,
            }
        )
    )
    image = torch.ones(1, 3, 32, 32)
    with torch.no_grad():
        model(image)
        told["cells"] = bool((model.embed(image).x_BLD - bare(model, image)).abs().max() > 1e-3)
        queries = model.embed_target(None, model.encode(model.embed(image)))
        told["query vectors"] = bool(queries.x_BLD.any())
    return told


def bare(model: Any, image: torch.Tensor) -> torch.Tensor:
    features: torch.Tensor = model.source.project(model.source.features(image)[0])
    return features.flatten(2).transpose(1, 2)


PLACES = ("encoder self", "cross keys", "cells", "decoder self", "cross queries", "query vectors")


@pytest.mark.parametrize(
    ("source", "at", "expected"),
    [
        ({}, "attention", (1, 1, 0, 1, 1, 0)),
        ({"positions": None}, "attention", (0, 0, 0, 1, 1, 0)),
        ({"positions_at": "input"}, "input", (0, 0, 1, 0, 0, 1)),
        ({"positions_at": "encoder-attention"}, "attention", (1, 0, 0, 1, 1, 0)),
        ({"positions_at": "decoder-attention"}, "input", (0, 1, 0, 0, 0, 1)),
        ({"positions": S.LearnedPositions2D(count=8)}, "attention", (1, 1, 0, 1, 1, 0)),
    ],
)
def test_positions_enter_exactly_where_the_values_say(
    source: dict[str, Any], at: str, expected: tuple[int, ...]
) -> None:
    spec = detector(source=source)
    spec = S.replace(spec, target=S.replace(spec.target, at=at))
    told = attention_inputs(spec)
    assert tuple(int(told[place]) for place in PLACES) == expected


def test_positions_at_a_decoder_need_one() -> None:
    spec = detector(source={"positions_at": "decoder-attention"})
    with pytest.raises(ValueError, match=r"source\.positions_at.*no decoder"):
        S.replace(spec, decoder=None, target=None, head=S.ClassifierHead(num_labels=2))


# What is refused before the first step


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ([10, 10, 0, 4], "is empty"),
        ([40, 2, 10, 10], "outside its image of 32×24 pixels"),
        ([20, 15, 30, 23], "looks like left, top, right and bottom"),
        ([-9, 2, 10, 10], "outside its image"),
    ],
)
def test_a_box_that_is_not_in_its_image_is_refused(box: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_boxes([box], (32, 24))
    check_boxes([[-1, 2, 10, 10], [28, 20, 4, 6]], (32, 24))  # a little outside is clipped


def test_boxes_that_are_fractions_of_their_images_are_refused() -> None:
    """One such box may be a speck; when all are, they were not given in pixels."""
    with pytest.raises(ValueError, match="look like fractions of their image"):
        check_box_units([[0.2, 0.3, 0.5, 0.5], [0.0, 0.0, 1.0, 1.0]])
    check_box_units([[0.2, 0.3, 0.5, 0.5], [2, 1, 4, 4]])
    check_box_units([])
    out = BytesIO()
    Image.new("RGB", (20, 10)).save(out, "PNG")
    row = {"image": out.getvalue(), "boxes": [[0.1, 0.1, 0.5, 0.5]], "labels": [LABELS[1]]}
    store = small_store([row], R.ImagesWithBoxes(), LABELS, None)[0]
    with pytest.raises(ValueError, match="look like fractions"):
        BoxSamples(store, classes=3)


def test_a_class_that_the_head_lacks_is_refused() -> None:
    store = scenes()
    with pytest.raises(ValueError, match=r"sample 2 has class 1, .*0 to 0; prepare"):
        BoxSamples(store, classes=1)
    with pytest.raises(ValueError, match="the data have 3 labels, the head 2 outputs"):
        build_task(R.Detection(), detector(classes=2), store.meta)


def test_more_objects_than_queries_are_refused_in_training_alone() -> None:
    store = scenes()
    most = max(len(store.row(i)["labels"]) for i in range(len(store)))
    words = f"has {most} objects, but the model has {most - 1} queries"
    with pytest.raises(ValueError, match=words):
        BoxSamples(store, classes=3, queries=most - 1)
    BoxSamples(store, classes=3, queries=most)
    few = build_task(R.Detection(), replace_queries(detector(), most - 1), store.meta)
    with pytest.raises(ValueError, match=words):
        few.preprocess.read_samples(store, 64, include_partial=False)
    few.preprocess.read_samples(store, 64, include_partial=True)


def test_more_objects_than_queries_are_refused_wherever_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once in the samples that are looked at first, and in others when they are read."""
    monkeypatch.setattr("weft.data.images.boxes.CHECKED", 1)  # the first, which has no object
    samples = BoxSamples(scenes(), classes=3, queries=2)
    with pytest.raises(ValueError, match="sample 3 has 3 objects, but the model has 2 queries"):
        samples[3]


def replace_queries(model: weft.Spec, count: int) -> weft.Spec:
    return replace(model, target=replace(model.target, count=count))


def test_boxes_become_fractions_of_the_image_and_follow_it() -> None:
    corners = np.array([[2.0, 4.0, 10.0, 8.0]])
    assert relative_boxes(corners, 20, 10).tolist() == [[0.3, 0.6, 0.4, 0.4]]
    pixels = np.zeros((10, 20, 3), np.uint8)
    pixels[4:8, 2:10] = 255
    out = BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    row = {"image": out.getvalue(), "boxes": [[2, 4, 8, 4]], "labels": [LABELS[1]]}
    store = small_store([row], R.ImagesWithBoxes(), LABELS, None)[0]
    flip = R.RandomHorizontalFlip(p=1.0)
    size = R.RandomShortestSize(min_size=(30,), max_size=50)
    task = R.Detection(transforms=(flip, size))
    made = build_task(task, detector(), store.meta)
    moved, still = (
        rows(made.preprocess, made.preprocess.open_samples(store, 32, include_partial=partial))[0]
        for partial in (False, True)
    )
    assert moved["image"].shape == still["image"].shape == (3, 25, 50)
    for found, corners in ((moved, (25, 10, 45, 20)), (still, (5, 10, 25, 20))):
        lit = np.argwhere(found["image"][0] > 0.5)
        assert (*(lit.min(0)[::-1]), *(lit.max(0)[::-1] + 1)) == corners
        left, top, right, bottom = corners
        expected = [(left + right) / 100, (top + bottom) / 50, (right - left) / 50, 0.4]
        assert found["boxes"][0].tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="Detection has no mixed boxes"):
        R.Detection(transforms=(R.Normalize(), R.MixUp()))


@pytest.mark.parametrize("field", ["transforms", "eval_transforms"])
def test_evaluation_never_crops_what_boxes_are_looked_for_in(field: str) -> None:
    with pytest.raises(ValueError, match="its evaluation would crop it"):
        R.Detection(**{field: (R.CenterCrop(size=32), R.Normalize())})
    R.Detection(transforms=(R.RandomSizeCrop(min_size=8, max_size=16), R.Normalize()))


def test_a_crop_drops_the_classes_of_the_boxes_that_it_drops() -> None:
    task = R.Detection(transforms=(R.CenterCrop(size=10), R.Normalize()), eval_transforms=())
    store = scenes()
    made = build_task(task, detector(), store.meta)
    given = rows(made.preprocess, made.preprocess.open_samples(store, 32))
    assert any(len(row["labels"]) < len(store.row(i)["labels"]) for i, row in enumerate(given))
    for i, row in enumerate(given):
        assert len(row["labels"]) == len(row["boxes"])
        assert set(row["labels"]) <= set(store.row(i)["labels"])


def test_a_batch_of_unequal_images_has_a_mask_of_visible_pixels() -> None:
    made, given = built()
    whole = batch(made.preprocess, given)
    store = scenes()
    assert whole["image"].shape == (6, 3, 48, 48)
    for i, mask in enumerate(whole["image_attention_mask"]):
        image = decode(store.row(i)["image"])
        assert mask.sum() == image.width * image.height
        assert mask[: image.height, : image.width].all()
        assert not whole["image"][i][:, ~mask].any()
    assert (whole["labels"] == IGNORE_INDEX).sum(1).tolist() == [3, 2, 1, 0, 3, 2]


# Average precision


def random_boxes(seed: int, images: int = 12) -> tuple[list[Any], list[Any]]:
    g = np.random.default_rng(seed)
    references = []
    predictions = []
    for _ in range(images):
        boxes = [
            (int(g.integers(3)), *g.uniform(0, 200, 2).tolist(), *g.uniform(4, 160, 2).tolist())
            for _ in range(g.integers(0, 5))
        ]
        references.append(boxes)
        near = [
            (label, float(g.random()), *(np.array(box) + g.normal(0, 4, 4)).clip(1).tolist())
            for label, *box in boxes
            if g.random() < 0.8
        ]
        wild = [
            (int(g.integers(3)), float(g.random()), *g.uniform(1, 100, 4).tolist())
            for _ in range(g.integers(0, 3))
        ]
        predictions.append(near + wild)
    return predictions, references


@pytest.mark.parametrize("seed", range(3))
def test_average_precision_is_that_of_pycocotools(seed: int) -> None:
    pytest.importorskip("faster_coco_eval")
    coco, evaluator = (pytest.importorskip(f"pycocotools.{part}") for part in ("coco", "cocoeval"))
    predictions, references = random_boxes(seed)
    ours = dict(detection_metrics(predictions, references))
    with redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        truth.dataset = coco_ground_truth(references)
        truth.createIndex()
        judge = evaluator.COCOeval(truth, truth.loadRes(coco_results(predictions)), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    names = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
    assert ours == pytest.approx(dict(zip(names, judge.stats[:6], strict=True)), abs=1e-9)
    assert 0 < ours["ap"] < ours["ap50"] < 1


def test_perfect_boxes_score_one_and_none_score_nothing() -> None:
    pytest.importorskip("faster_coco_eval")
    _, references = random_boxes(4)
    perfect = [[(label, 0.9, *box) for label, *box in boxes] for boxes in references]
    assert dict(detection_metrics(perfect, references))["ap"] == pytest.approx(1.0)
    assert dict(detection_metrics([[] for _ in references], references))["ap"] == 0.0


def test_object_queries_start_with_variance_1_as_published() -> None:
    """They alone tell the queries apart: small ones would all say the same box."""
    model = build(weft.detr(width=64, heads=2, queries=100, classes=3), seed=0)
    assert 0.95 < model.target.queries.weight.std().item() < 1.05  # type: ignore[union-attr]
