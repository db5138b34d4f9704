"""The Moses tokenizer for words and punctuation (Koehn et al. 2007, "Moses: Open Source Toolkit for
Statistical Machine Translation"), with English and German rules and French and Italian apostrophes.
Hyphens are kept and nothing is escaped.
"""

import re
from string import ascii_lowercase, ascii_uppercase


def words(text: str) -> list[str]:
    return text.split()


TITLES = words("""
        Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con Corp Cpl DR Dr Ens Gen Gov
    Hon Hosp Insp Lt MM MR MRS MS Maj Messrs Mlle
        Mme Mr Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen Sens Sfc Sgt Sr St
    Supt Surg v vs""")
ROMAN = words("II III IV VI VII VIII IX XI XII XIII XIV XV XVI XVII XVIII XIX XX")
GERMAN = words("""
        Mio Mrd bzw usw d.h z.B u.a etc MwSt ggf vgl z.T sog sogen ff u.s.w Std evtl Chr u.U o.ä
    u.ä Ltd sen jun dgl Co zzt usf bzgl No Nos Art
    Nr pp ca Ca""")
# Words that keep their full stop (case-sensitive); German writes "10." for "tenth"
KEPT = {
    "en": {*ascii_uppercase, *TITLES, "i.e", "e.g", "rev"},
    "de": {
        *ascii_uppercase,
        *ascii_lowercase,
        *TITLES,
        *GERMAN,
        *ROMAN,
        *(r.lower() for r in ROMAN),
        *map(str, range(1, 100)),
    },
}
KEPT_BEFORE_NUMBERS = {"en": {"No", "Nos", "Art", "Nr", "pp"}}
ODD = re.compile(r"[^\w\s.'`,\-]|_")
LETTER = r"[^\W\d_]"
APOSTROPHE = re.compile("'")
ELIDED = re.compile(rf"(?<!{LETTER})'|'(?!{LETTER})")
SPLIT = {
    "en": re.compile(
        rf"(?<!{LETTER})'(?!{LETTER})|(?<!\w)'(?={LETTER})|(?<={LETTER})'(?!{LETTER})"
    ),
    "fr": ELIDED,
    "it": ELIDED,
}
JOINED = re.compile(rf"(?<={LETTER})'(?={LETTER})|(?<=\d)'(?=s)")  # don 't, the 1990 's; l' homme


def tokenize(text: str, language: str = "en") -> list[str]:
    text = ODD.sub(r" \g<0> ", " ".join(text.split()))
    text = re.sub(r"\.{2,}", r" \g<0> ", text)
    text = re.sub(r"(?<!\d),|,(?!\d)", " , ", text)  # 5,300 is one number
    text = SPLIT.get(language, APOSTROPHE).sub(" ' ", text)
    parts = JOINED.sub("' " if language in ("fr", "it") else " '", text).split()
    tokens = list[str]()
    for word, after in zip(parts, [*parts[1:], ""], strict=False):
        tokens += [word[:-1], "."] if ends_sentence(word, after, language) else [word]
    return tokens


def ends_sentence(word: str, after: str, language: str) -> bool:
    """Return whether a full stop ends a sentence and not an abbreviation."""
    before = word.removesuffix(".")
    if before == word or not before or before.endswith("."):
        return False
    shortened = ("." in before and any(c.isalpha() for c in before)) or before in KEPT.get(
        language, ()
    )
    counted = before in KEPT_BEFORE_NUMBERS.get(language, ()) and after[:1].isdigit()
    return not (shortened or counted or after[:1].islower())
