"""Chat dicts (OpenAI chat completions, DashScope) <-> `Msg`, with nothing lost either way.

Content says what it can; what it cannot say goes into a remark: in `metadata["openai"]` about the message
dict, in `block["openai"]` about one call or part (`calls`, `parts`). About a message:

- `role`: "developer" or "function", which are `system` messages here;
- `content`: how content stood where blocks leave it open: "null", "string" (empty), "list" (empty, or one
  plain text beside calls or reasoning) or "absent";
- `keys`: the dict's keys in order, when not the usual ones; a name is sent only when it stands among them;
- `extra`: keys that have no place in content, with their values;
- `markers`: request metadata (`cache_control`) with its places, which is no part of either.

`to_openai` reads no other metadata.
"""

from __future__ import annotations

from context_compressor.messages.chat.blocks import AUDIO_FORMATS, block_to_part
from context_compressor.messages.chat.reading import from_openai
from context_compressor.messages.chat.writing import (
    Markers,
    has_marker,
    in_turn,
    set_markers,
    split_markers,
    text_forms,
    to_openai,
)
from context_compressor.messages.wire import (
    REMARK,
    are_markers,
    as_dict,
    as_list,
    extra_of,
    extras_of_call,
    form_of,
    is_legacy_result,
    metadata_with,
    parse_arguments,
    sends_name,
    without_remark,
    without_request_metadata,
)

__all__ = [
    "AUDIO_FORMATS",
    "REMARK",
    "Markers",
    "are_markers",
    "as_dict",
    "as_list",
    "block_to_part",
    "extra_of",
    "extras_of_call",
    "form_of",
    "from_openai",
    "has_marker",
    "in_turn",
    "is_legacy_result",
    "metadata_with",
    "parse_arguments",
    "sends_name",
    "set_markers",
    "split_markers",
    "text_forms",
    "to_openai",
    "without_remark",
    "without_request_metadata",
]
