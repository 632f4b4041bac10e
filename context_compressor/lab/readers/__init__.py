"""Sessions of other programs, read as OpenAI chat dicts."""

from context_compressor.lab.readers.detection import detect_format
from context_compressor.lab.readers.reading import MAX_UNPACKED, Reading, read_all, read_path, read_stream
from context_compressor.lab.readers.session import (
    Form,
    Format,
    Problem,
    Session,
    UnreadableError,
    grouped,
    grouped_texts,
    summed,
)

__all__ = [
    "MAX_UNPACKED",
    "Form",
    "Format",
    "Problem",
    "Reading",
    "Session",
    "UnreadableError",
    "detect_format",
    "grouped",
    "grouped_texts",
    "read_all",
    "read_path",
    "read_stream",
    "summed",
]
