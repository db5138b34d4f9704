"""The page and its pictures: exact numbers in few bytes, without requests, for eyes, keyboard and
both colour schemes.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import weft
from tests.inference.small import ready, tokenizer
from tests.observe.browser import Browser
from tests.observe.test_attention import random_map
from tests.observe.test_vision import opened, picture
from weft import spec as S
from weft.cli import main
from weft.commands.look import line as panel_line
from weft.inference.look import LENS_POSITIONS, look
from weft.inference.open_model import OpenModel
from weft.observe import panels, save_observation
from weft.observe.page import page_html
from weft.observe.panels import AttentionPanel, LensPanel, Observation

TEXT = "the man went to the store to buy some milk ."


def small_observation(heads: int = 3, layers: int = 2, tokens: int = 5) -> Observation:
    names = tuple(f"word{i}" for i in range(tokens))
    maps = tuple(random_map(heads, tokens, tokens) for _ in range(layers))
    lens = tuple(tuple((("yes", 0.7), ("no", 0.3)) for _ in names) for _ in range(layers + 1))
    panel = AttentionPanel("encoder", tuple(range(layers)), maps, names, names)
    return Observation("a model", "five words", (panel,), LensPanel(names, lens))


def decoded(plain: dict[str, Any]) -> np.ndarray:
    shape = (len(plain["layers"]), plain["heads"], plain["rows"], plain["columns"])
    return (np.frombuffer(b64decode(plain["maps"]), np.uint8).reshape(shape) / 255.0) ** 2


# Packing


def test_a_page_holds_the_weights_to_half_a_step_of_a_byte() -> None:
    observation = small_observation()
    plain = panels.to_plain(observation)["panels"][0]
    exact = torch.stack(observation.panels[0].maps).numpy()
    assert np.abs(np.sqrt(decoded(plain)) - np.sqrt(exact)).max() <= 0.5 / 255 + 1e-6
    assert "links" not in plain


def test_pooled_maps_keep_the_largest_weight_of_each_square() -> None:
    weight = random_map(2, 7, 5)
    small = panels.pool_maps(weight, 3)
    assert small.shape == (2, 3, 2)
    for i in range(3):
        for j in range(2):
            square = weight[:, 3 * i : 3 * i + 3, 3 * j : 3 * j + 3]
            assert torch.equal(small[:, i, j], square.amax((1, 2)))


def test_of_long_inputs_the_strongest_links_stand_at_their_exact_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(panels, "WHOLE_MAPS", 100)
    monkeypatch.setattr(panels, "POOLED_MAPS", 60)
    observation = small_observation(heads=2, layers=2, tokens=9)
    plain = panels.to_plain(observation)["panels"][0]
    assert plain["factor"] > 1
    assert decoded(plain).size <= 60
    top = plain["links"]
    shape = (2, 2, 9, top)
    keys = np.frombuffer(b64decode(plain["linkKeys"]), "<u2").reshape(shape)
    weights = np.frombuffer(b64decode(plain["linkWeights"]), np.uint8).reshape(shape)
    for y, weight in enumerate(observation.panels[0].maps):
        for h in range(2):
            for i in range(9):
                order = sorted(range(9), key=lambda j: -float(weight[h, i, j]))[:top]
                assert keys[y, h, i].tolist() == order
                expected = [round(255 * float(weight[h, i, j]) ** 0.5) for j in order]
                assert np.abs(weights[y, h, i] - np.array(expected)).max() <= 1


@pytest.mark.slow
def test_a_long_input_of_a_large_model_is_a_page_under_ten_megabytes() -> None:
    """Even of weights that are all alike, which compress least."""
    observation = small_observation(heads=12, layers=12, tokens=512)
    rollout = AttentionPanel(
        "encoder rollout",
        tuple(range(12)),
        tuple(random_map(1, 512, 512) for _ in range(12)),
        observation.panels[0].queries,
        observation.panels[0].keys,
    )
    both = Observation("large", "", (*observation.panels, rollout), observation.lens)
    assert len(page_html(both).encode()) < 10_000_000


# The page as a text


def test_a_page_asks_for_nothing_and_its_texts_cannot_run() -> None:
    hostile = "</script><script>alert(1)</script>"
    names = (hostile, "<b>")
    panel = AttentionPanel("encoder", (0,), (random_map(1, 2, 2),), names, names)
    html = page_html(Observation(f"$DATA {hostile}", hostile, (panel,)))
    assert html.count("<script") == html.count("</script") == 2
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a format
    assert "default-src 'none'" in html
    data = re.search(r'id="data">(.*?)</script>', html, re.S)
    assert data is not None
    assert json.loads(data[1])["text"] == hostile


def relative_luminance(colour: str) -> float:
    """WCAG 2.2, "relative luminance"."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted(map(relative_luminance, (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def mixed(one: str, other: str, share: float) -> str:
    sides = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (one, other)]
    return "#" + "".join(
        f"{round(a * share + b * (1 - share)):02x}" for a, b in zip(*sides, strict=True)
    )


def test_texts_and_controls_have_the_contrast_that_wcag_asks_for() -> None:
    html = page_html(small_observation())
    blocks = re.findall(r":root \{(.*?)\}", html, re.S)
    schemes = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert len(schemes) == 2
    for c in schemes:
        for ground in (c["page"], c["panel"], mixed(c["accent"], c["panel"], 0.35)):
            assert contrast(c["text"], ground) >= 4.5
        assert contrast(c["muted"], c["page"]) >= 4.5
        assert contrast(c["on-accent"], c["accent"]) >= 4.5
        for line in (c["line"], c["accent"]):  # borders and the focus ring: 3 to 1
            assert contrast(line, c["page"]) >= 3
            assert contrast(line, c["panel"]) >= 3


# What is seen of texts


def test_an_encoder_shows_its_heads_rollout_and_lens() -> None:
    model = ready(None)
    observation = look(model, TEXT)
    assert [panel.kind for panel in observation.panels] == ["encoder", "encoder rollout"]
    assert observation.lens is not None
    special = tokenizer().special
    ids = torch.tensor([[special["bos"], *tokenizer().encode(TEXT), special["eos"]]])
    with torch.no_grad():
        logits = model.model(ids)[0]
    share, word = logits.softmax(-1).max(-1)
    for position, ranks in enumerate(observation.lens.words[-1]):
        assert abs(ranks[0][1] - float(share[position])) < 1e-6
    assert len(observation.lens.words) == 3
    assert word.shape == (len(observation.lens.tokens),)


def test_a_decoder_shows_the_last_positions_of_a_long_text() -> None:
    model = ready(None, "gpt2", kind="ByteBPE")
    observation = look(model, "a dog runs over the green grass and " * 3)
    assert [panel.kind for panel in observation.panels] == ["decoder", "decoder rollout"]
    assert observation.lens is not None
    assert len(observation.lens.tokens) == min(LENS_POSITIONS, len(observation.panels[0].queries))
    assert all(torch.equal(weight, weight.tril()) for weight in observation.panels[0].maps)
    with pytest.raises(ValueError, match="at most 64; give a shorter text"):
        look(model, TEXT * 20)


def test_an_encoder_decoder_shows_both_and_what_is_between() -> None:
    spec = weft.with_dropout(
        weft.transformer(depth=2, width=32, heads=4, hidden=48, vocab_size=tokenizer().size), 0.0
    )
    model = OpenModel("small", weft.build(spec).eval(), tokenizer(), None, Path("."))
    observation = look(model, TEXT, target="he said yes !")
    kinds = {panel.kind: panel for panel in observation.panels}
    assert list(kinds) == ["encoder", "decoder", "cross", "encoder rollout"]
    assert kinds["cross"].queries == kinds["decoder"].keys
    assert kinds["cross"].keys == kinds["encoder"].keys
    assert "said" in kinds["decoder"].queries
    generated = look(model, TEXT)
    assert len(generated.panels[1].queries) >= 1
    with pytest.raises(ValueError, match="reads one text"):
        look(ready(None), TEXT, target="no")


def test_a_classifier_shows_its_classes_at_every_layer() -> None:
    model = ready(S.ClassifierHead(num_labels=2, labels=("good", "bad")))
    lens = look(model, TEXT).lens
    assert lens is not None
    assert lens.tokens == ("class",)
    assert {word for word, _ in lens.words[-1][0]} == {"good", "bad"}
    assert look(ready(S.ClassifierHead(num_labels=1)), TEXT).lens is None


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "bert"
    model = ready(None)
    weft.save(model.model, path, to="hf")
    tokenizer().save(path / "tokenizer.json")
    return path


def test_look_writes_a_page_and_pictures(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["look", str(folder), TEXT, "--output", str(page), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["bytes"] == page.stat().st_size
    assert summary["attention"][0]["layers"] == 2
    pictures = {}
    for name, more in {
        "heads.png": [],
        "head.png": ["--layer", "2", "--head", "3"],
        "heads.svg": [],
    }.items():
        assert main(["look", str(folder), TEXT, "--output", str(tmp_path / name), *more]) == 0
        pictures[name] = (tmp_path / name).read_bytes()
    assert pictures["heads.svg"].lstrip().startswith(b"<?xml")
    sizes = [Image.open(BytesIO(pictures[name])).size for name in ("heads.png", "head.png")]
    assert sizes[0] != sizes[1]
    api = weft.look(folder, TEXT, output=tmp_path / "api.html", device="cpu")
    assert (tmp_path / "api.html").read_text() == page.read_text()
    assert api.panels[0].maps[0].shape[0] == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--output", "x.gif"], "x.gif: the suffix '.gif' is not supported"),
        (["--output", "x.png", "--layer", "3"], "encoder has no layer 3; its layers are 1 to 2"),
        (["--output", "x.png", "--head", "9"], "encoder has no head 9; its heads are 1 to 4"),
        (["--output", "x.png", "--attention", "cross"], "unknown attention kind 'cross'"),
        (["--output", "x.png", "--open"], "give --output NAME.html, not x.png"),
    ],
)
def test_errors_are_one_line_with_a_fix(
    folder: Path, more: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["look", str(folder), TEXT, *more]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("name", ["noise.png", "missing.PNG", "notes"])
def test_the_name_of_a_file_is_no_text(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (4, 4)).save("noise.png")
    Path("notes").write_text("A dog runs.")
    assert main(["look", str(folder), name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
    assert "reads text" in line
    assert not Path("look.html").exists()
    with pytest.raises(ValueError, match=name):
        weft.look(folder, name)
    assert main(["look", str(folder), "The picture is called noise.png", "--json"]) == 0


def test_an_empty_text_is_not_the_default_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["look", "demo", "", "--output", str(page)]) == 2
    assert "empty" in capsys.readouterr().err
    assert not page.exists()
    empty = weft.look(folder, "").panels[0].queries
    assert len(empty) < len(weft.look(folder, "a").panels[0].queries)  # special tokens alone


def test_the_picture_never_takes_the_place_of_the_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = weft.vit(depth=1, width=16, heads=2, hidden=16, image_size=16, patch_size=4, classes=2)
    weft.save(weft.build(spec), tmp_path / "vit")
    image = tmp_path / "image.png"
    Image.new("RGB", (16, 16)).save(image)
    before = image.read_bytes()
    assert main(["look", str(tmp_path / "vit"), str(image), "--output", str(image)]) == 2
    assert f"--output: {image} is an input" in capsys.readouterr().err
    assert image.read_bytes() == before


def test_the_example_of_the_documentation_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "use.md").read_text()
    section = text[text.index("## Looking inside") : text.index("## Fine-tuning")]
    (block,) = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    exec(block, {})  # noqa: S102


# In the browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened_browser = Browser(tmp_path_factory.mktemp("browser"))
    yield opened_browser
    opened_browser.close()


def active(browser: Browser) -> str:
    label: str = browser.evaluate("document.activeElement.getAttribute('aria-label') ?? "
                                  "document.activeElement.textContent")  # fmt: skip
    return label


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_used_by_keyboard_and_mouse_in_both_colour_schemes(
    browser: Browser, tmp_path: Path, dark: bool
) -> None:
    page = tmp_path / "page.html"
    page.write_text(page_html(small_observation()))
    browser.open(page, dark=dark)
    assert browser.requests() == [page.resolve().as_uri()]
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(21, 23, 28)" if dark else "rgb(255, 255, 255)")
    # The tab key: views, kinds, layer, head, then the heads.
    stops = []
    for _ in range(5):
        browser.press("Tab")
        stops.append(browser.evaluate("document.activeElement.id || "
                                      "document.activeElement.textContent"))  # fmt: skip
    assert stops[:4] == ["tab-overview", "encoder", "layer", "head"]
    assert active(browser).startswith("layer 1, head 1")
    outline = browser.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"
    browser.press("ArrowRight")
    browser.press("ArrowDown")
    assert active(browser).startswith("layer 2, head 2")
    browser.press("Enter")
    assert active(browser) == "attention map of encoder, layer 2, head 2"
    browser.press("ArrowLeft")
    assert active(browser) == "attention map of encoder, layer 2, head 1"
    status = "document.getElementById('status').textContent"
    place = browser.evaluate("(() => {const r = "
                             "document.getElementById('matrix').getBoundingClientRect(); return "
                             "[r.left, r.top, r.width]})()")  # fmt: skip
    browser.move_mouse(place[0] + place[2] - 20, place[1] + place[2] - 20)
    assert browser.evaluate(status).startswith("word4 → word4: 0.")
    for view in ("word", "lens"):
        browser.evaluate(f"document.getElementById('tab-{view}').focus()")
        browser.evaluate(f"document.getElementById('tab-{view}').click()")
    assert "yes" in browser.evaluate("document.querySelector('#lens td').textContent")
    browser.evaluate("document.querySelector('#lens td').focus()")
    browser.press("ArrowDown")
    assert browser.evaluate(status) == "layer 1, at word0: yes 0.700, no 0.300"
    browser.evaluate("document.getElementById('tab-word').click()")
    browser.evaluate("document.querySelector('#from [tabindex=\"0\"]').focus()")
    browser.press("ArrowDown")
    assert browser.evaluate(status).startswith("word1 → ")
    assert browser.evaluate("document.querySelectorAll('#lines line').length") > 0
    assert browser.errors() == []


def load_milliseconds(browser: Browser, page: Path) -> float:
    browser.open(page)
    loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    return float(browser.evaluate(loaded))


@pytest.mark.slow
@pytest.mark.alone
def test_a_large_page_opens_nearly_as_fast_as_its_bytes_are_read(
    browser: Browser, tmp_path: Path
) -> None:
    # Seconds depend on the machine and its neighbours, so the page is compared with its bytes
    # alone.
    page = tmp_path / "page.html"
    bare = tmp_path / "bare.html"
    text = page_html(small_observation(heads=12, layers=12, tokens=512))
    page.write_text(text)
    bare.write_text(f"<!doctype html><script type='text/plain'>{'A' * len(text)}</script>")
    rounds = [
        (load_milliseconds(browser, bare), load_milliseconds(browser, page)) for _ in range(4)
    ]
    fastest_bare, fastest_page = map(min, zip(*rounds, strict=True))
    assert fastest_page < 6 * fastest_bare
    assert browser.evaluate("document.querySelectorAll('#overview canvas').length") == 144
    assert browser.errors() == []


def test_the_tabs_are_moved_by_arrows(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(page_html(small_observation()))
    browser.open(page)
    browser.evaluate("document.getElementById('tab-overview').focus()")
    for view in ("head", "word", "lens", "overview"):
        browser.press("ArrowRight")
        assert browser.evaluate("document.activeElement.id") == f"tab-{view}"
        assert not browser.evaluate(f"document.getElementById('view-{view}').hidden")


def test_an_image_is_looked_at_from_another_place_by_keys_and_by_object(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(page_html(look(opened("detr"), picture())))
    browser.open(page, "#view=image")
    status = "document.getElementById('status').textContent"
    browser.evaluate("document.getElementById('picture').focus()")
    assert browser.evaluate(status).startswith("row 1, column 1 → ")
    browser.press("ArrowRight", shift=True)
    browser.press("ArrowDown", shift=True)
    assert browser.evaluate(status).startswith("row 2, column 2 → ")
    browser.evaluate("document.querySelector('#objects button').click()")
    assert "(cross, layer 2, head 1" in browser.evaluate(status)
    assert browser.evaluate("document.querySelector('#objects [aria-pressed=true]') !== null")
    assert browser.errors() == []


def test_a_picture_names_the_model_the_input_and_the_scale(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are drawn with the extra viz")
    from matplotlib import rc_context

    for name, place in (("all", {}), ("one", {"layer": 2, "head": 1})):
        path = tmp_path / f"{name}.svg"
        with rc_context({"svg.fonttype": "none"}):
            save_observation(small_observation(), path, **place)
        for words in ("a model: encoder attention", "five words", "attention weight"):
            assert words in path.read_text()
        assert ("token that attends" in path.read_text()) == (name == "one")


def test_one_head_and_many_are_counted_in_words() -> None:
    panel = {"kind": "encoder", "layers": 3, "heads": 1, "queries": 4, "keys": 4}
    assert panel_line(panel) == "encoder: 3 layers of 1 head, 4 × 4 tokens"
    assert (
        panel_line(panel | {"layers": 1, "heads": 12})
        == "encoder: 1 layer of 12 heads, 4 × 4 tokens"
    )


def test_a_page_without_javascript_says_what_to_do() -> None:
    page = page_html(small_observation())
    assert "<title>a model: what it attends to</title>" in page
    assert "weft look MODEL INPUT -o heads.png" in page.partition("<noscript>")[2]


def test_the_sentence_that_is_looked_at_by_default_fits_a_model_of_few_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft.inference.look.default_row_length", lambda model: 12)
    assert 2 < len(look(ready(None)).panels[0].queries) <= 12


def test_the_picture_of_all_heads_is_scaled_to_the_largest_weight() -> None:
    """Weights of many patches are small: up to 1 they would all be pale."""
    pytest.importorskip("matplotlib", reason="pictures are drawn with the extra viz")
    from weft.observe.figure import draw_heads

    names = tuple(map(str, range(64)))
    maps = tuple(torch.full((2, 64, 64), weight) for weight in (1 / 64, 1 / 32))
    figure = draw_heads(AttentionPanel("encoder", (0, 1), maps, names, names))
    limits = {axes.images[0].get_clim() for axes in figure.axes if axes.images}
    assert limits == {(0.0, 1 / 32)}
