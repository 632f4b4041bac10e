"""A stateless web handler: conversation and state come with each request and go back with the answer.

    python examples/web_handler.py

Nothing stays in the server between two requests, so any number of servers may take turns. Here the handler
runs in a thread, and the script beside it is its client.
"""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from make_session import make_session

from context_compressor import CompressionConfig, compress_messages
from context_compressor.errors import ContextCompressorError, ContextOverflowError

CONFIG = CompressionConfig(max_total_tokens=16_000)


class Handler(BaseHTTPRequestHandler):
    """POST {"messages": [...], "state": ...}: answer with what to send to the model, and the new state."""

    def do_POST(self) -> None:
        try:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            result = compress_messages(body["messages"], config=CONFIG, state=body.get("state"))
        except ContextOverflowError as error:  # what may not leave, a system prompt above all, is too long
            self._answer(413, {"error": str(error)})
        except (ContextCompressorError, KeyError, TypeError, ValueError) as error:
            # Not messages, or not a state of ours: the text says where.
            self._answer(400, {"error": str(error)})
        else:
            self._answer(200, {"messages": result.messages, "state": result.state})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def post(url: str, value: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(value).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    session = make_session()
    state: Any = None
    earlier: list[Any] = []
    for end in (40, 60, 62):
        answer = post(url, {"messages": session[:end], "state": state})
        still = answer["messages"][: len(earlier)] == earlier
        print(f"{end} messages came, {len(answer['messages'])} go to the model; prefix kept: {still}")
        state, earlier = answer["state"], answer["messages"]
    server.shutdown()


main()
