"""`collect_garbage` has moved to `context_compressor`: this path goes after one release."""

import warnings

from context_compressor.offload.retention import collect_garbage as collect_garbage

warnings.warn(
    "context_compressor.offload.directory.gc has moved: import from context_compressor",
    DeprecationWarning,
    stacklevel=2,
)
