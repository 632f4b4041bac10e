"""What a chat-completions provider refuses, written down on its own: nothing here asks the library."""

import json


def problems(messages: list[dict]) -> list[str]:
    """Return what a provider would refuse in these chat dicts; none for a valid request."""
    found: list[str] = []
    open_calls: dict[str, bool] = {}
    seen_ids: set[str] = set()
    legacy_open = False

    def close(where: str) -> None:
        nonlocal legacy_open
        unanswered = [id for id, answered in open_calls.items() if not answered]
        found.extend(f"{where}: call {id!r} has no result" for id in unanswered)
        open_calls.clear()
        if legacy_open:
            found.append(f"{where}: a function_call has no result")
        legacy_open = False

    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role")
        content = message.get("content")
        if role == "tool":
            id = message.get("tool_call_id")
            if id not in open_calls:
                found.append(f"{where}: result for {id!r}, which is not open")
            elif open_calls[id]:
                found.append(f"{where}: second result for {id!r}")
            else:
                open_calls[id] = True
            if content is None:
                found.append(f"{where}: result without content")
            continue
        if role == "function":
            if not legacy_open:
                found.append(f"{where}: function result without function_call")
            legacy_open = False
            continue
        close(where)
        if role not in ("system", "developer", "user", "assistant"):
            found.append(f"{where}: role {role!r}")
        if role != "assistant":
            if content is None or content == []:
                found.append(f"{where}: {role} message without content")
            continue
        calls = message.get("tool_calls")
        if "tool_calls" in message and calls == []:
            found.append(f"{where}: empty tool_calls")
        for call in calls or []:
            id = call.get("id")
            if not id:
                found.append(f"{where}: call without id")
            if id in seen_ids:
                found.append(f"{where}: call id {id!r} used before")
            seen_ids.add(id)
            open_calls[id] = False
            if call.get("type") == "custom":
                continue
            _check_arguments(call["function"].get("arguments"), where, found)
        legacy = message.get("function_call")
        if legacy:
            legacy_open = True
            _check_arguments(legacy.get("arguments"), where, found)
        if not calls and not legacy and not _says_something(content) and not message.get("audio"):
            found.append(f"{where}: empty assistant message")
    close("end")
    if messages and all(message.get("role") in ("system", "developer") for message in messages):
        found.append("only instructions")
    return found


def _check_arguments(arguments: object, where: str, found: list[str]) -> None:
    if isinstance(arguments, dict):
        return
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError):
        value = None
    if not isinstance(value, dict):
        found.append(f"{where}: arguments that are no JSON object: {str(arguments)[:60]!r}")


def _says_something(content: object) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return isinstance(content, list) and any(_part_says_something(part) for part in content)


def _part_says_something(part: dict) -> bool:
    if part.get("type") == "text" or (part.get("type") is None and set(part) <= {"text"}):
        return bool(str(part.get("text", "")).strip())
    return any(value for key, value in part.items() if key != "type")
