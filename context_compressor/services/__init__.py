"""Memory services: users' messages added, searched, listed and deleted, by agentscope-runtime's names."""

from context_compressor.services.base import MemoryService
from context_compressor.services.handover import HandOver
from context_compressor.services.in_memory import InMemoryMemoryService

__all__ = ["HandOver", "InMemoryMemoryService", "MemoryService"]
