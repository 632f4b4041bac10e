"""OpenAI Agents SDK: `Compression`, a filter of model inputs, and what goes with it."""

from context_compressor.errors import naming_extras

with naming_extras("openai-agents"):
    import agents  # noqa: F401

from context_compressor.integrations.openai_agents.filter import Compression
from context_compressor.integrations.openai_agents.model import CompressedModel
from context_compressor.integrations.openai_agents.session import CompressedSession

__all__ = ["CompressedModel", "CompressedSession", "Compression"]
