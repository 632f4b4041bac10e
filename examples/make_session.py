"""Print a recorded session, the same one each time, to try the command line on.

python examples/make_session.py > chat.json
"""

import json
from typing import Any

HOSTS = 40
BROKEN_HOST = 17


def read_log(host: int) -> str:
    """Return a night's log of a host; one of them lost an order."""
    lines = [
        f"02:{minute:02}:07 INFO  host-{host:02} order {host * 100 + minute} shipped" for minute in range(60)
    ]
    if host == BROKEN_HOST:
        lines[41] = f"02:41:07 ERROR host-{host:02} order 8f3a-77 dropped: disk quota exceeded on /var/spool"
    return "\n".join(lines)


def make_session() -> list[dict[str, Any]]:
    """Return the chat messages of an agent that reads one log after the other."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You look after 40 hosts. Read logs with read_log(host)."},
        {"role": "user", "content": "Which host dropped an order last night, and why?"},
    ]
    for host in range(HOSTS):
        function = {"name": "read_log", "arguments": json.dumps({"host": host})}
        call = {"id": f"call_{host}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": read_log(host)})
    return messages


if __name__ == "__main__":
    print(json.dumps(make_session(), indent=1))
