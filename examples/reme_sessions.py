"""Put back what ReMe's short-term memory moved out of the sessions that it saved.

ReMe 0.2 and 0.3 keep no history: where a long tool result was, a saved session has a line that names a file,
and where older messages were, a summary that names one. This writes the session as it was before, for
`AgentScopeCompressedMemory` to load:

    python examples/reme_sessions.py OLD_SESSION.json NEW_SESSION.json working_memory
    python examples/reme_sessions.py OLD_FOLDER NEW_FOLDER working_memory

The last is the folder that `store_dir` named. Nothing is changed but the new files; their folder is made. If
a file is missing, what names it stays as it is, session and file are named, and the exit code is 1.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from context_compressor import from_openai

# As ReMe writes them: `MessageCompactOp` and `MessageCompressOp` of reme-ai 0.2.
RESULT = re.compile(
    r"tool call=.+? result is stored in file path=`([^`\n]+)`(?:\npreview: .*\.\.\.)?", re.DOTALL
)
HEAD = "[Compressed conversation history - Part "
PART = re.compile(
    r"\n\(Original \d+ messages are stored in: ([^\n]+)\)(?=\s*\Z|\n\n" + re.escape(HEAD) + ")", re.DOTALL
)


class Files:
    """What ReMe wrote, by the names in its texts; `gone` are those that are not there any more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = 0
        self.groups: set[str] = set()
        self.gone: set[str] = set()

    def read(self, path: str) -> str | None:
        try:
            # The name alone: it is made of a tool call's id, which may say anything.
            return (self.folder / Path(path).name).read_text(encoding="utf-8")
        except FileNotFoundError:
            self.gone.add(path)
            return None

    def messages(self, paths: list[str]) -> list[dict[str, Any]] | None:
        """Return the messages that one summary stands for, unless they are put back already."""
        texts = [text for path in paths if (text := self.read(path)) is not None]
        if len(texts) < len(paths) or not self.groups.isdisjoint(paths):
            return None
        self.groups.update(paths)
        # At once, as a call may be in one of them and its result in the next.
        chats = [chat for text in texts for chat in json.loads(text)]
        return [msg.to_dict() for msg in from_openai(chats)]


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text") or "" for block in content or () if block.get("type") == "text")


def whole(value: Any, files: Files) -> Any:
    """Return any part of a saved session with everything put back."""
    if isinstance(value, list):
        return [made for item in value for made in spread(item, files)]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "tool_result":
        named = RESULT.fullmatch(text_of(value.get("output")))
        text = files.read(named[1]) if named else None
        if text is not None:
            files.results += 1
            return {**value, "output": [{"type": "text", "text": text}]}
    return {key: whole(item, files) for key, item in value.items()}


def spread(item: Any, files: Files) -> Iterator[Any]:
    """Yield a message, alone or with its marks, or those that it stands for; anything else as it is."""
    is_pair = isinstance(item, list) and len(item) == 2 and isinstance(item[0], dict)
    message = item[0] if is_pair else item
    if isinstance(message, dict) and message.get("role") == "assistant":
        text = text_of(message.get("content"))
        paths = PART.findall(text) if text.startswith(HEAD) else []
        messages = files.messages(paths) if paths else None
        if messages is not None:
            yield from whole([[one, []] for one in messages] if is_pair else messages, files)
            return
    yield whole(item, files)


def main() -> int:
    parser = argparse.ArgumentParser(description="Put back what ReMe moved out of saved sessions.")
    parser.add_argument(
        "old", type=Path, help="a session that ReMe's memory saved (JSON), or a folder of them"
    )
    parser.add_argument("new", type=Path, help="where to write it, or them; must not be there yet")
    parser.add_argument("files", type=Path, help="the folder of ReMe's store_dir")
    args = parser.parse_args()
    if args.new.exists():
        parser.error(f"{args.new}: is there already; name another, or remove it")
    olds = sorted(args.old.glob("*.json")) if args.old.is_dir() else [args.old]
    if not olds:
        parser.error(f"{args.old}: holds no .json file; name the folder in which the sessions lie")
    is_whole = True
    for old in olds:
        files = Files(args.files)
        session = whole(json.loads(old.read_text(encoding="utf-8")), files)
        new = args.new / old.name if args.old.is_dir() else args.new
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(session, ensure_ascii=False), encoding="utf-8")
        print(f"{new}: put back {files.results} tool results, {len(files.groups)} groups of messages")
        for path in sorted(files.gone):
            print(f"{new}: missing {path}", file=sys.stderr)
        is_whole = is_whole and not files.gone
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
