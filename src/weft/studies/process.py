"""One run of a study in a child process: `python -m weft.studies.process RUN PREPARED PARENT`.
Exits with 0 when the run is done and with 75 when it is stopped and saved.
"""

import os
import sys
from pathlib import Path

from ..support.processes import die_with_parent


def train_directory(directory: Path, prepared: str) -> None:
    """Train the rest of a run with recipe.json and prepared data.

    Raises:
        RunStopped: as `runs.train.train` does.
    """
    from ..data.preparing.prepared import PreparedData
    from ..runs.train import train
    from ..support.addresses import locate
    from ..support.user_code import load_code_of_run
    from ..training.checkpoints.compatibility import recipe_of

    load_code_of_run(directory)
    recipe = recipe_of(directory, lambda line: None)
    for _ in train(recipe, PreparedData(recipe.data, locate(prepared)), directory):
        pass


def main(directory: str, prepared: str, parent: str) -> int:
    die_with_parent()
    if os.getppid() != int(parent):  # the parent ended before the line above
        return os.EX_TEMPFAIL
    from ..runs.train import RunStopped

    try:
        train_directory(Path(directory), prepared)
    except RunStopped:
        return os.EX_TEMPFAIL
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
