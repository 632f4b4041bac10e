"""Histories, texts and states in Redis, Redis Cluster or Valkey."""

from context_compressor.backends.redis.history import RedisHistory as RedisHistory
from context_compressor.backends.redis.history import RedisMemory as RedisMemory
