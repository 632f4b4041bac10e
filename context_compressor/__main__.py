"""The program's start: `python -m context_compressor` and the script `context-compressor`."""

import sys


def main() -> None:
    """Run the command line, and end the process with its exit code; 130 while it is still being loaded."""
    try:
        from context_compressor.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("context-compressor: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
