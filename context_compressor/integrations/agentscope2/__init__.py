"""AgentScope 2: `Agent(..., middlewares=[Compression(max_total_tokens=16_000)])`."""

from context_compressor.integrations.agentscope2.middleware import Compression

__all__ = ["Compression"]
