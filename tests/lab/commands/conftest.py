from tests.cli.conftest import cli, recorded

__all__ = ["cli", "recorded"]
