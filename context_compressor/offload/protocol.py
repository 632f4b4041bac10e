"""Moved to `offload.store`: this path goes after one release."""

import warnings

from context_compressor.offload.store import check_ref as check_ref
from context_compressor.offload.store import ref_of as ref_of

warnings.warn(
    "context_compressor.offload.protocol has moved: import from context_compressor",
    DeprecationWarning,
    stacklevel=2,
)
