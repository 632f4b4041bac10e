"""Memory services: users' messages added, searched, listed and deleted, by agentscope-runtime's names."""

from context_compressor.services.base import InMemoryMemoryService, MemoryService
from context_compressor.services.handover import HandOver

__all__ = ["HandOver", "InMemoryMemoryService", "MemoryService"]
