"""What this module had is in `plain`, `remark`, `kinds` and `chat`; each name warns here, for one release."""

from context_compressor.moved import names_of

__getattr__ = names_of("context_compressor.messages", "plain", "remark", "kinds", "chat")
