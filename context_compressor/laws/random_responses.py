"""Random histories of Responses input items that the API accepts, by `responses_rules`."""

from __future__ import annotations

import json
from random import Random

from context_compressor.laws.pieces import ARGUMENTS, NAMES, PDF, PNG, Dict, Pieces

FOUND = "radar_scan"
"""A tool that the model knows from where a search for tools found it."""
DEFINITION: Dict = {"type": "function", "name": FOUND, "parameters": {}, "strict": False}


def random_responses(rng: Random, turns: int, *, plain: bool = False) -> list[Dict]:
    """Return a history of so many turns; a turn is a request and all that is done for it.

    A plain one holds texts and calls of functions alone.
    """
    return _History(Pieces(rng), plain).write(turns)


class _History:
    """Some clients send items with their ids, some without; some have reasoning, encrypted or by id."""

    def __init__(self, pieces: Pieces, plain: bool) -> None:
        self._draw = pieces
        self._plain = plain
        self._with_ids = not pieces.one_in(4)
        self._encrypted = not self._with_ids or pieces.one_in(2)
        self._reasons = not plain and not pieces.one_in(3)
        self._owed: list[Dict] = []
        self._names = NAMES

    def write(self, turns: int) -> list[Dict]:
        items: list[Dict] = []
        if self._draw.one_in(3):
            items.append(self._instruction())
        for _ in range(turns):
            items.append(self._user())
            for _ in range(self._draw.pick((0, 0, 1, 1, 2, 3))):
                items += self._program() if self._happens(12) else self._round()
            if self._owed or not self._draw.one_in(6):
                items += [*self._opening(), self._message("final_answer")]
            if self._happens(10):
                items.append(self._aside())
        return [self._draw.keys(item) for item in items]

    def _happens(self, count: int) -> bool:
        """Tell whether something happens that does not in a plain history."""
        return not self._plain and self._draw.one_in(count)

    def _instruction(self) -> Dict:
        role = self._draw.pick(("system", "developer"))
        return {"type": "message", "role": role, "content": self._content(media=False)}

    def _user(self) -> Dict:
        message: Dict = {"role": "user", "content": self._content()}
        match self._draw.number(0, 3):
            case 0:
                message = {"type": "message", **message}
            case 1:
                message = {"id": self._draw.fresh("msg"), **message, "type": "message", "status": "completed"}
        return message

    def _content(self, *, media: bool = True) -> str | list[Dict]:
        draw = self._draw
        if draw.one_in(2):
            return draw.text()
        return [self._part(media=media) for _ in range(draw.pick((1, 1, 2, 3)))]

    def _part(self, *, media: bool = True) -> Dict:
        draw = self._draw
        kind = draw.number(0, 9) if media and not self._plain else 0
        if kind < 6:
            part: Dict = {"type": "input_text", "text": draw.pick(("", draw.text(), draw.text()))}
            if draw.one_in(12):
                part["prompt_cache_breakpoint"] = {"mode": "explicit"}
        elif kind < 8:
            address = draw.pick(("https://example.com/a.png", f"data:image/png;base64,{PNG}"))
            part = {"type": "input_image", **draw.some(detail="low"), "image_url": address}
            if draw.one_in(3):
                part = {"type": "input_image", "file_id": "file-1", "detail": "auto"}
        else:
            source = draw.pick(
                (
                    {"file_id": "file-2"},
                    {"file_url": "https://example.com/a.pdf"},
                    {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
                )
            )
            part = {"type": "input_file", **source}
        return draw.keys(part)

    def _round(self) -> list[Dict]:
        """What one response holds, with the outputs of its calls behind it."""
        draw = self._draw
        items = self._opening()
        if self._happens(5):
            items += [*self._hosted(), *self._thoughts()]
        if draw.one_in(4):
            items.append(self._message("commentary"))
        if self._happens(20):
            items.append(self._unknown())
        pairs = [self._call() for _ in range(draw.pick((1, 1, 1, 2, 3, 4)))]
        items += [call for call, _ in pairs]
        if draw.one_in(12):
            items.append(self._user())
        outputs = draw.order([output for _, output in pairs])
        if draw.one_in(12):
            outputs.insert(1, self._user())
        self._load(outputs)
        return items + outputs

    def _program(self) -> list[Dict]:
        """A program that OpenAI runs, which calls the client's functions; its output is owed then."""
        draw = self._draw
        call_id = draw.fresh("call")
        program = {"type": "program", "id": draw.fresh("pg"), "call_id": call_id, "code": "look()"}
        items = [*self._opening(), {**program, "fingerprint": "c2ln"}]
        for _ in range(draw.pick((1, 2, 3))):
            pairs = [self._function() for _ in range(draw.pick((1, 1, 2)))]
            for call, _ in pairs:
                call["caller"] = {"type": "program", "caller_id": call_id}
            items += [*(call for call, _ in pairs), *draw.order([output for _, output in pairs])]
        output = {"type": "program_output", "id": draw.fresh("po"), "call_id": call_id}
        self._owed.append({**output, "result": draw.output(), "status": "completed"})
        return items

    def _opening(self) -> list[Dict]:
        """What a response begins with: outputs of programs that are owed, and thoughts."""
        owed, self._owed = self._owed, []
        return [*owed, *self._thoughts()]

    def _load(self, found: list[Dict]) -> None:
        """From an output that defines it on the model may call the tool that is found."""
        if FOUND in json.dumps(found):
            self._names = (*NAMES, FOUND, FOUND, FOUND)

    def _thoughts(self) -> list[Dict]:
        draw = self._draw
        if not self._reasons or draw.one_in(3):
            return []
        return [self._reasoning() for _ in range(draw.pick((1, 1, 1, 2)))]

    def _reasoning(self) -> Dict:
        draw = self._draw
        item: Dict = {"type": "reasoning"}
        if self._with_ids:
            item["id"] = draw.fresh("rs")
        item["summary"] = [
            {"type": "summary_text", "text": f"**Looking**\n\n{draw.text()}"}
            for _ in range(draw.pick((0, 0, 1, 2)))
        ]
        if self._encrypted:
            item["encrypted_content"] = "gAAAAABo" + "Zm9vYmFy" * draw.number(8, 90)
        elif draw.one_in(3):
            item |= draw.some(encrypted_content=None, content=[{"type": "reasoning_text", "text": "Hm."}])
        return item

    def _id(self, prefix: str) -> Dict:
        return {"id": self._draw.fresh(prefix)} if self._with_ids else {}

    def _message(self, phase: str) -> Dict:
        draw = self._draw
        if draw.one_in(5):
            return {"role": "assistant", "content": draw.text()}
        parts: list[Dict] = []
        for _ in range(draw.pick((1, 1, 1, 2))):
            part: Dict = {"type": "output_text", "text": draw.text()}
            match draw.number(0, 4):
                case 0 | 1:
                    part["annotations"] = []
                case 2:
                    part["annotations"] = [
                        {
                            "type": "url_citation",
                            "start_index": 0,
                            "end_index": 2,
                            "title": "A page",
                            "url": "https://example.com",
                        }
                    ]
                    part["logprobs"] = []
                case 3 if draw.one_in(4):
                    part = {"type": "refusal", "refusal": "I cannot help with that."}
            parts.append(draw.keys(part))
        message = {**self._id("msg"), "type": "message", "role": "assistant", "content": parts}
        return message | draw.some(status="completed", phase=phase)

    def _call(self) -> tuple[Dict, Dict]:
        draw = self._draw
        call_id = draw.fresh("call")
        extra = draw.some(status="completed", caller={"type": "direct"})
        kind = 15 if self._plain else draw.number(0, 15)
        if kind == 0:
            call = {**self._id("ctc"), "type": "custom_tool_call", "call_id": call_id, "name": "exec"}
            call["input"] = draw.output()
            return call, {"type": "custom_tool_call_output", "call_id": call_id, "output": self._output()}
        if kind == 1:
            return self._shell(call_id, extra)
        if kind == 2:
            return self._patch(call_id)
        if kind == 3 and self._with_ids:
            action = {"type": "exec", "command": ["bash", "-lc", draw.pick(NAMES)], "env": {}}
            call = {"type": "local_shell_call", "call_id": call_id, "action": action, "status": "completed"}
            named = draw.pick(("call_id", "id"))
            output = {"type": "local_shell_call_output", named: call_id, "output": draw.output()}
            return {**self._id("lsh"), **call}, output
        if kind == 4 and self._with_ids:
            return self._computer(call_id)
        if kind == 5:
            same = {"call_id": call_id, "execution": "client", "status": "completed"}
            found = {**DEFINITION, "name": draw.pick((FOUND, *NAMES))}
            call = {**self._id("ts"), "type": "tool_search_call", **same, "arguments": {"query": "files"}}
            return call, {"type": "tool_search_output", **same, "tools": [found][: draw.number(0, 1)]}
        call, output = self._function()
        return {**call, **extra}, output

    def _function(self) -> tuple[Dict, Dict]:
        draw = self._draw
        call_id = draw.fresh("call")
        call = {**self._id("fc"), "type": "function_call", "call_id": call_id}
        call |= {"name": draw.pick(self._names), "arguments": draw.pick(ARGUMENTS)}
        output = {"type": "function_call_output", "call_id": call_id, "output": self._output()}
        return call, output | draw.some(id=draw.fresh("fco"), status="completed")

    def _output(self) -> str | list[Dict]:
        draw = self._draw
        if not draw.one_in(5):
            return draw.output()
        parts = [self._part() for _ in range(draw.pick((1, 1, 2)))]
        return [{"type": "input_text", "text": draw.output()}, *parts]

    def _shell(self, call_id: str, extra: Dict) -> tuple[Dict, Dict]:
        draw = self._draw
        action = {"commands": ["ls -l", "cat a.txt"], **draw.some(timeout_ms=1000, max_output_length=None)}
        call = {**self._id("sh"), "type": "shell_call", "call_id": call_id, "action": action, **extra}
        outcome = draw.pick(({"type": "exit", "exit_code": 0}, {"type": "timeout"}))
        chunks = [
            draw.keys({"stdout": draw.output(), "stderr": "", "outcome": outcome})
            for _ in range(draw.pick((0, 1, 1, 2)))
        ]
        output = {"type": "shell_call_output", "call_id": call_id, "output": chunks}
        return call, output | draw.some(max_output_length=4000, status="completed")

    def _patch(self, call_id: str) -> tuple[Dict, Dict]:
        draw = self._draw
        operation: Dict = {"type": draw.pick(("create_file", "update_file", "delete_file")), "path": "a.py"}
        if operation["type"] != "delete_file":
            operation["diff"] = "+x = 1\n" * draw.number(1, 80)
        call = {**self._id("apc"), "type": "apply_patch_call", "call_id": call_id, "status": "completed"}
        output: Dict = {"type": "apply_patch_call_output", "call_id": call_id}
        output["status"] = draw.pick(("completed", "failed"))
        return {**call, "operation": operation}, output | draw.some(output=draw.output())

    def _computer(self, call_id: str) -> tuple[Dict, Dict]:
        call = {
            **self._id("cu"),
            "type": "computer_call",
            "call_id": call_id,
            "action": {"type": "click", "button": "left", "x": 10, "y": 20},
            "pending_safety_checks": [],
            "status": "completed",
        }
        shot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}
        return call, {"type": "computer_call_output", "call_id": call_id, "output": shot}

    def _hosted(self) -> list[Dict]:
        draw = self._draw
        if draw.one_in(6):
            self._names = (*NAMES, FOUND, FOUND, FOUND)
            same = {"call_id": None, "execution": "server", "status": "completed"}
            call = {**self._id("ts"), "type": "tool_search_call", **same, "arguments": {"paths": ["radar"]}}
            return [call, {**self._id("to"), "type": "tool_search_output", **same, "tools": [DEFINITION]}]
        server = {"server_label": "docs", "name": "search", "arguments": '{"q": "x"}'}
        kinds: tuple[tuple[str, Dict], ...] = (
            ("ws", {"type": "web_search_call", "action": {"type": "search", "query": "x"}}),
            ("fs", {"type": "file_search_call", "queries": ["x"], "results": None}),
            (
                "ci",
                {"type": "code_interpreter_call", "code": "1 + 1", "container_id": "cntr_1", "outputs": None},
            ),
            ("ig", {"type": "image_generation_call", "result": PNG}),
            ("mcp", {"type": "mcp_call", **server, "output": draw.output(), "error": None}),
        )
        prefix, fields = draw.pick(kinds)
        return [{"id": draw.fresh(prefix), **fields, "status": "completed"}]

    def _aside(self) -> Dict:
        """Something that stands between two turns."""
        draw = self._draw
        match draw.number(0, 5):
            case 0:
                return {"type": "compaction", "encrypted_content": "gAAAAABp" * 20, **self._id("cmp")}
            case 1:
                return {"type": draw.pick(("item_reference", None)), "id": draw.fresh("msg")}
            case 2:
                tools: list[Dict] = [{"name": "search", "input_schema": {"type": "object"}}]
                return {
                    "type": "mcp_list_tools",
                    "id": draw.fresh("mcpl"),
                    "server_label": "docs",
                    "tools": tools,
                }
            case 3:
                return {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
            case 4:
                return self._instruction()
        return self._unknown()

    def _unknown(self) -> Dict:
        """An item of a kind that is yet to come."""
        return {"type": "future_item", "id": self._draw.fresh("fi"), "data": {"text": self._draw.text()}}
