"""Measure the effect of SAGAN's self-attention in a small convolutional classifier of Fashion-MNIST
(examples/self_attention_cnn.py).

    WEFT_DATA=… python -m benchmarks.self_attention_2d [--steps 1500] [--seeds 3] [--receipt FILE]

The last line is JSON: the steps, and the accuracy of each seed with the block, with a residual
block and with neither.
"""

import argparse
import json
import time
from importlib import import_module
from pathlib import Path

from weft.data.reading.files import find

from . import command, receipt


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--receipt", metavar="FILE")
    options = parser.parse_args()
    start = time.perf_counter()
    example = import_module("examples.self_attention_cnn")
    folder = Path(find("fashion-mnist/train-images-idx3-ubyte.gz")[0]).parent
    train, test = (example.load(folder, split) for split in ("train", "t10k"))
    found = {"steps": options.steps, **example.main(train, test, options.steps, options.seeds)}
    if options.receipt:
        receipt.write(options.receipt, found, time.perf_counter() - start, options.seeds - 1)
    print(json.dumps(found))


if __name__ == "__main__":
    command.run(main)
