"""What needs packages that the others cannot be installed beside is collected where these are."""

from importlib.metadata import PackageNotFoundError, version

try:
    _IS_SECOND = version("agentscope").startswith("2.")
except PackageNotFoundError:
    _IS_SECOND = False

collect_ignore = [] if _IS_SECOND else ["agentscope2"]
