"""Sessions of other programs, read as OpenAI chat dicts."""

from context_compressor.readers.reading import Reading, detect_format, read_all, read_path, read_stream
from context_compressor.readers.session import Form, Format, Problem, Session, UnreadableError

__all__ = [
    "Form",
    "Format",
    "Problem",
    "Reading",
    "Session",
    "UnreadableError",
    "detect_format",
    "read_all",
    "read_path",
    "read_stream",
]
