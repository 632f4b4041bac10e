"""Moved: import `in_turn` from `context_compressor`."""

from context_compressor.messages.chat.writing import BRIDGE as BRIDGE
from context_compressor.messages.chat.writing import in_turn as in_turn
