"""`python -m weft`, and `torchrun -m weft train RECIPE` for many ranks."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
