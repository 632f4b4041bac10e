"""AgentScope 1.x: a compressed memory, a summariser and the tools, as its agents take them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_compressor.integrations.agentscope.memory import AgentScopeCompressedMemory
    from context_compressor.integrations.agentscope.model import AgentScopeSummarizer, register_offload_tools
    from context_compressor.integrations.agentscope.stored import (
        AsyncSQLAlchemyMemory,
        InMemoryMemory,
        RedisMemory,
    )

__all__ = [
    "AgentScopeCompressedMemory",
    "AgentScopeSummarizer",
    "AsyncSQLAlchemyMemory",
    "InMemoryMemory",
    "RedisMemory",
    "register_offload_tools",
]

_MODULES = {
    "AgentScopeCompressedMemory": "memory",
    "AgentScopeSummarizer": "model",
    "AsyncSQLAlchemyMemory": "stored",
    "InMemoryMemory": "stored",
    "RedisMemory": "stored",
    "register_offload_tools": "model",
}
"""Where each name lives. AgentScope is imported at the first use of one; `history` does without it."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
