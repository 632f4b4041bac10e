import subprocess
import sys

from tests.cli.support import environment, run_process


def test_importing_the_library_pulls_in_neither_typer_nor_rich(tmp_path):
    code = "import sys, context_compressor; print({'typer', 'rich', 'click'} & sys.modules.keys())"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, check=True
    )

    assert ran.stdout.strip() == b"set()"


def test_version_and_help(cli):
    assert cli("--version").out.startswith("context-compressor ")
    assert cli().out == cli("--help").out == cli("-h").out
    for command in ("compress", "read", "grep", "demo"):
        assert command in cli("--help").out
        ran = cli(command, "--help")
        assert (ran.code, ran.err) == (0, "")
        assert "Usage: context-compressor" in ran.out


def test_the_package_runs_as_a_module(tmp_path):
    ran = run_process("--version", cwd=tmp_path)

    assert ran.returncode == 0
    assert ran.stdout.startswith(b"context-compressor ")


def test_a_closed_stdout_is_one_line(tmp_path):
    (tmp_path / "chat.json").write_text("[]")
    ran = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m context_compressor compress chat.json >&-', sys.executable],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
    )

    assert (ran.returncode, ran.stderr) == (2, b"context-compressor: stdout is closed\n")
