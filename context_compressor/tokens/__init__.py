"""How long a message is: counters and vocabularies, images and other media, a provider's counts."""

from context_compressor.tokens.calibration import Calibration
from context_compressor.tokens.counter import MessageTokens, TokenCounter, check_counter, measure
from context_compressor.tokens.media import image_size
from context_compressor.tokens.off_loop import (
    gather,
    load_off_loop,
    measure_all_off_loop,
    run_off_loop,
    run_rules_off_loop,
    text_characters,
)
from context_compressor.tokens.tiktoken import TiktokenCounter
from context_compressor.tokens.vocabularies import estimate_tokens

__all__ = [
    "Calibration",
    "MessageTokens",
    "TiktokenCounter",
    "TokenCounter",
    "check_counter",
    "estimate_tokens",
    "gather",
    "image_size",
    "load_off_loop",
    "measure",
    "measure_all_off_loop",
    "run_off_loop",
    "run_rules_off_loop",
    "text_characters",
]
