"""Chat dicts (OpenAI chat completions, DashScope) <-> `Msg`, with nothing lost either way.

Content says what it can; what it cannot say goes into a remark: in `metadata["openai"]` about the message
dict, in `block["openai"]` about one call or part (`calls`, `parts`). About a message:

- `role`: "developer" or "function", which are `system` messages here;
- `content`: how content stood where blocks leave it open: "null", "string" (empty), "list" (empty, or one
  plain text beside calls or reasoning) or "absent";
- `keys`: the dict's keys in order, when not the usual ones; a name is sent only when it stands among them;
- `extra`: keys that have no place in content, with their values.

`to_openai` reads no other metadata.
"""

from __future__ import annotations

from context_compressor.messages.openai.reading import as_list, from_openai
from context_compressor.messages.openai.writing import to_openai

__all__ = ["as_list", "from_openai", "to_openai"]
