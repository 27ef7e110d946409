"""`python -m trimtab`: the command line where the `trimtab` script is not on the path."""

from trimtab.cli import main

main()
