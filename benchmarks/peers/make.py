"""Make an environment for each peer: `python benchmarks/peers/make.py [environment ...]`, or `make peers`.

What is installed by `requirements/NAME.txt`, and without dependencies by `requirements/NAME.no-deps.txt`. An
environment is made anew when these changed since. One that cannot be made is reported and the next one tried.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
REQUIREMENTS = FOLDER / "requirements"
ENVIRONMENTS = FOLDER / ".venvs"
NO_DEPS = ".no-deps.txt"


def files_of(name: str) -> list[Path]:
    """Return the requirements of an environment."""
    return [
        path for path in (REQUIREMENTS / f"{name}.txt", REQUIREMENTS / f"{name}{NO_DEPS}") if path.exists()
    ]


def make(name: str) -> None:
    """Make an environment, unless the one that is there was made from the same requirements.

    Raises:
        subprocess.CalledProcessError: pip failed.
    """
    place = ENVIRONMENTS / name
    stamp = place / "installed"
    wanted = "".join(path.read_text(encoding="utf-8") for path in files_of(name))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"Installing {name} into {place}", flush=True)
    venv.create(place, clear=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    # Compiling takes as long as the rest, and most of what comes along is never imported.
    pip += ["--disable-pip-version-check", "--no-compile"]
    for path in files_of(name):
        options = ["--no-deps"] if path.name.endswith(NO_DEPS) else []
        subprocess.run([*pip, *options, "--requirement", str(path)], check=True)
    # Written last, so that an installation that broke off is taken up again.
    stamp.write_text(wanted, encoding="utf-8")


def main() -> int:
    names = sorted(path.stem for path in REQUIREMENTS.glob("*.txt") if not path.name.endswith(NO_DEPS))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", nargs="*", metavar="environment", help="default: all of them")
    failed = []
    for name in parser.parse_args().environment or names:
        try:
            make(name)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{name} cannot be installed, and will be left out: {error}", file=sys.stderr)
            failed.append(name)
    return 1 if len(failed) == len(names) else 0


if __name__ == "__main__":
    sys.exit(main())
