"""`python -m context_compressor` is the command line."""

from context_compressor.cli.app import main

main()
