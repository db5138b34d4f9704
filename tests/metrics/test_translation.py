"""Translation metrics: signatures of BLEU and chrF, and Moses tokenization."""

import pytest

from weft.metrics.moses import tokenize
from weft.metrics.translation import bleu, chrf, tokenised_bleu, translation_metrics

sacrebleu = pytest.importorskip("sacrebleu", reason="the extra eval: pip install '.[eval]'")

REFERENCES = [
    "Ein Mann schläft in einem grünen Raum, auf dem Bett",
    "Zwei Hunde rennen über die Wiese.",
    "Die Frau trinkt Dr. Meiers Tee.",
]
HYPOTHESES = [
    "Ein Mann schläft im grünen Zimmer, auf einem Sofa.",
    "Zwei Hunde laufen über die Wiese.",
    "die Frau trinkt Dr. Meiers Tee!",
]


def test_bleu_and_chrf_are_sacrebleus_on_text_as_people_write_it() -> None:
    found = dict(translation_metrics(HYPOTHESES, REFERENCES, "de"))
    assert found["BLEU"] == pytest.approx(
        sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score, abs=1e-12
    )
    assert found["chrF"] == pytest.approx(
        sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score, abs=1e-12
    )


def test_the_plain_name_belongs_to_detokenised_text_alone_and_every_figure_has_its_signature() -> (
    None
):
    """Bug 20: a figure on tokenised text that does not say so."""
    plain = dict(bleu(HYPOTHESES, REFERENCES))
    lower = dict(bleu(HYPOTHESES, REFERENCES, lowercase=True))
    none = dict(bleu(HYPOTHESES, REFERENCES, tokenize="none"))
    moses = dict(tokenised_bleu(HYPOTHESES, REFERENCES, "de"))
    assert list(plain) == ["BLEU", "BLEU signature"]
    assert next(iter(lower)) == "BLEU (lower-cased)"
    assert next(iter(none)) == "BLEU (of tokenised text)"
    assert next(iter(moses)) == "BLEU (lower-cased, Moses-tokenised)"
    assert list(dict(chrf(HYPOTHESES, REFERENCES))) == ["chrF", "chrF signature"]
    for found, case, tokens in (
        (plain, "case:mixed", "tok:13a"),
        (lower, "case:lc", "tok:13a"),
        (none, "case:mixed", "tok:none"),
        (moses, "case:lc", "tok:none"),
    ):
        (signature,) = (value for name, value in found.items() if name.endswith("signature"))
        assert {case, tokens, f"version:{sacrebleu.__version__}"} <= set(str(signature).split("|"))


def test_tokenised_bleu_is_that_of_the_tokens_and_differs_from_the_plain_one() -> None:
    def tokens(texts: list[str]) -> list[str]:
        return [" ".join(tokenize(text.lower(), "de")) for text in texts]

    wanted = sacrebleu.corpus_bleu(
        tokens(HYPOTHESES), [tokens(REFERENCES)], tokenize="none", lowercase=True, force=True
    ).score
    found = dict(tokenised_bleu(HYPOTHESES, REFERENCES, "de"))
    assert found["BLEU (lower-cased, Moses-tokenised)"] == pytest.approx(wanted, abs=1e-12)
    assert wanted != pytest.approx(dict(bleu(HYPOTHESES, REFERENCES))["BLEU"], abs=0.1)


def test_unequal_numbers_of_translations_and_references_are_refused() -> None:
    with pytest.raises(ValueError, match="2 translations for 3 references"):
        dict(bleu(HYPOTHESES[:2], REFERENCES))


@pytest.mark.parametrize(
    ("text", "language", "tokens"),
    [
        ("Hello, world!", "en", "Hello , world !"),
        ("It's 5,300 dollars, isn't it?", "en", "It 's 5,300 dollars , isn 't it ?"),
        ("The dogs' house in the 1990's", "en", "The dogs ' house in the 1990 's"),
        ("Mr. Smith went to Washington.", "en", "Mr. Smith went to Washington ."),
        ("It is in the U.S. now. Yes", "en", "It is in the U.S. now . Yes"),
        ("No. 5 is alive. No. Really", "en", "No. 5 is alive . No . Really"),
        ("a well-known fact -- or so...", "en", "a well-known fact -- or so ..."),
        ('He said "stop" (twice).', "en", 'He said " stop " ( twice ) .'),
        # a small letter follows: an abbreviation, for all that is known
        (
            "an end. of sorts",
            "en",
            "an end. of sorts",
        ),
        ("Das ist McDonald's z.B. heute.", "de", "Das ist McDonald ' s z.B. heute ."),
        ("mit der Nummer 10.", "de", "mit der Nummer 10."),  # the tenth
        ("mit der Nummer 102.", "de", "mit der Nummer 102 ."),
        ("Er rasiert seinen Bart.", "de", "Er rasiert seinen Bart."),
        ("er rasiert seinen bart.", "de", "er rasiert seinen bart ."),
        ("saftig-grünes Gras", "de", "saftig-grünes Gras"),
        ("", "de", ""),
    ],
)
def test_text_is_cut_as_moses_cuts_it(text: str, language: str, tokens: str) -> None:
    assert tokenize(text, language) == tokens.split()


@pytest.mark.parametrize(
    ("text", "language", "tokens"),
    [
        ("L'homme n'est pas l'ami d'1 chat.", "fr", "L' homme n' est pas l' ami d ' 1 chat ."),
        ("L'uomo dell'anno, po' dopo", "it", "L' uomo dell' anno , po ' dopo"),
    ],
)
def test_an_elision_stays_with_its_apostrophe(text: str, language: str, tokens: str) -> None:
    assert tokenize(text, language) == tokens.split()


def test_no_figure_is_called_moses_where_its_abbreviations_are_not_known() -> None:
    assert not [
        name for name in dict(translation_metrics(HYPOTHESES, REFERENCES, "fr")) if "Moses" in name
    ]
