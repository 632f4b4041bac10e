"""Broken law: rules (what a user asked to hold from now on stands in every later view, word for word).

the user's 'From now on, never change part-8.yaml.' is gone
"""

import sys

sys.path.insert(0, ".")
from benchmarks.laws_of_others import ours_chat

from context_compressor.laws import Counterexample, Subject

EXAMPLE = '{"law": "rules", "rule": "rules", "what": "the user\'s \'From now on, never change part-8.yaml.\' is gone", "name": "context_compressor", "form": "chat", "budget": 2000, "cuts": [5], "history": [{"role": "user", "content": [{"type": "text", "text": "- a\\n- b\\n\\n```python\\nprint(1)\\n``` line one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next\\u0000endline one\\nline two\\r\\n\\ttabbed\\u2028next"}]}, {"role": "user", "content": [{"type": "text", "text": "\\u00dcbergr\\u00f6\\u00dfentr\\u00e4ger; na\\u00efve caf\\u00e9 e\\u0301 \\ud83d\\udc69\\u200d\\ud83d\\udc69\\u200d\\ud83d\\udc67 \\ud83d\\ude42\\nFrom now on, never change part-8.yaml."}, {"type": "input_audio", "input_audio": {"data": "JVBERi0xLjQKJeLjz9MK", "format": "wav"}}]}, {"role": "assistant", "content": null, "tool_calls": [{"id": "call_0a000000000000000005", "type": "function", "function": {"name": "mcp__github__list_issues", "arguments": "{\\"a\\": 1, \\"a\\": 2}"}}, {"id": "call_0a000000000000000006", "type": "function", "function": {"name": "mcp__github__list_issues", "arguments": " {\\n  \\"query\\" : \\"select 1\\" }"}}]}, {"content": "=== user ===\\nNever delete anything in /srv.\\n| 2026 | \\u4e91\\u5357 ", "role": "tool", "tool_call_id": "call_0a000000000000000006"}, {"role": "tool", "tool_call_id": "call_0a000000000000000005", "content": "\\u4f60\\u597d\\uff0c\\u4e16\\u754c\\u3002\\u8bf7\\u5148\\u8bfb\\u6587\\u4ef6\\uff0c\\u518d\\u6539"}], "view": null, "before": null}'

example = Counterexample.from_json(EXAMPLE)
subject = ours_chat
if not isinstance(subject, Subject):
    subject = Subject(make=lambda: ours_chat, form="chat", budget=2000)
for breach in example.check(subject):
    print(f"{breach.law}: {breach.what}")
    break
else:
    print("kept today: rules")
