"""OpenAI Agents SDK: `Compression`, a filter of model inputs, and what goes with it."""

try:
    import agents  # noqa: F401
except ImportError as error:
    raise ImportError(
        "context_compressor.integrations.openai_agents needs the OpenAI Agents SDK: "
        f"pip install 'agent-context-compressor[openai-agents]' ({error})"
    ) from error

from context_compressor.integrations.openai_agents.filter import Compression
from context_compressor.integrations.openai_agents.model import CompressedModel
from context_compressor.integrations.openai_agents.session import CompressedSession

__all__ = ["CompressedModel", "CompressedSession", "Compression"]
