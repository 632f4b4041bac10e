"""Tools of an agent, and what it is asked: by its command line, a base URL and nothing else is told."""

import subprocess
import sys
from pathlib import Path

BASE_URL, REQUEST, API = sys.argv[1:4]
MOST_TURNS = 80
DESCRIPTIONS = {"read_file": "Read a file.", "run_command": "Run a command in a shell."}


def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


def run_command(command: str) -> str:
    """Run a command in a shell."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return done.stdout + done.stderr


TOOLS = {"read_file": read_file, "run_command": run_command}
SCHEMAS = {
    name: {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    for name, key in (("read_file", "path"), ("run_command", "command"))
}
