"""Entry point of the benchmark commands: errors of input are printed in one line, as by `weft`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(main: Callable[[], Any]) -> None:
    """Run a command; a wrong input leaves with 2, an interruption with 130."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        print(f"{Path(sys.argv[0]).stem}:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
