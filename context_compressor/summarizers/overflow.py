"""`is_overflow` has moved to `context_compressor`: this path goes after one release."""

import warnings

from context_compressor.summarizers.attempts import is_overflow as is_overflow
from context_compressor.summarizers.attempts import limit_in as limit_in

warnings.warn(
    "context_compressor.summarizers.overflow has moved: import from context_compressor",
    DeprecationWarning,
    stacklevel=2,
)
