"""`python -m weft` is the command `weft`."""

from lab.cli import main

main()
