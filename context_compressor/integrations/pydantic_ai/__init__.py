"""Compression for agents of Pydantic AI: `Agent("openai:gpt-5", capabilities=[Compression(...)])`."""

try:
    import pydantic_ai  # noqa: F401
except ImportError as error:
    raise ImportError(
        "Pydantic AI is not installed: pip install 'agent-context-compressor[pydantic-ai]'"
    ) from error

from context_compressor.integrations.pydantic_ai.capability import Compression

__all__ = ["Compression"]
