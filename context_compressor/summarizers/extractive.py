"""`ExtractiveSummarizer`: a summary drawn from the messages themselves, without a model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from context_compressor.summarizers.cutting import cut_to_tokens
from context_compressor.summarizers.digest import Digest, Statement, cut, digest
from context_compressor.summarizers.identifiers import describe, find_tokens, rank_identifiers
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from context_compressor.summarizers.sections import is_chinese, render_sections
from context_compressor.tokens.protocol import TokenCounter
