"""How the commands of this folder end: with one line for a wrong input, as the verbs of
`weft` do.
"""

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
