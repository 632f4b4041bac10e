"""The tools by which an agent finds and reads back what left its view, and the pages they answer with."""

from context_compressor.tools.grep import PatternError, compile_pattern, search_text
from context_compressor.tools.source import OffloadSource
from context_compressor.tools.tools import OffloadTools

__all__ = ["OffloadSource", "OffloadTools", "PatternError", "compile_pattern", "search_text"]
