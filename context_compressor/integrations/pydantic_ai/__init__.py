"""Compression for agents of Pydantic AI: `Agent("openai:gpt-5", capabilities=[Compression(...)])`."""

from context_compressor.errors import naming_extras

with naming_extras("pydantic-ai"):
    import pydantic_ai  # noqa: F401

from context_compressor.integrations.pydantic_ai.capability import Compression

__all__ = ["Compression"]
