"""What clients are installed from: npm's packages, and a virtual environment for each set of frameworks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv

from benchmarks.clients.catalogue import AGENTS, FOLDER, INSTALLED, NPM


def install(environment: str) -> None:
    """Install an environment, unless it was made from the same requirements.

    Raises:
        subprocess.CalledProcessError: that failed.
    """
    place = INSTALLED / environment
    source = FOLDER / ("package.json" if environment == "npm" else f"requirements/{environment}.txt")
    if environment == "npm":
        # Node looks for modules where a program lies.
        NPM.mkdir(parents=True, exist_ok=True)
        for program in AGENTS.glob("*.mjs"):
            shutil.copy(program, NPM)
    stamp, wanted = place / "installed", source.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"Installing {environment} into {place}", flush=True)
    if environment == "npm":
        shutil.copy(source, NPM / "package.json")
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
        subprocess.run(npm, cwd=NPM, check=True)
    else:
        venv.create(place, clear=True, with_pip=False)
        pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
        pip += ["--disable-pip-version-check", "--no-compile"]
        subprocess.run([*pip, "--requirement", str(source)], check=True)
    # Written last, so that an installation that broke off is taken up again.
    stamp.write_text(wanted, encoding="utf-8")
