"""A harness: talks chat completions in a loop, and has one tool. Run as a program, with nothing but Python.

Arguments: the file with the prompt. It writes where its model says, in its working folder.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

TOOL = {
    "type": "function",
    "function": {
        "name": "write_file",
        "description": "Write a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    },
}
MOST_TURNS = 10


def ask(messages: list) -> dict:
    """Return what the model says next."""
    body = {"model": os.environ["GYRE_MODEL"], "messages": messages, "tools": [TOOL]}
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]


def main() -> int:
    """Go on until the model calls no tool; return the exit code."""
    messages = [{"role": "user", "content": Path(sys.argv[1]).read_text()}]
    for _ in range(MOST_TURNS):
        message = ask(messages)
        messages.append({name: value for name, value in message.items() if value is not None})
        calls = message.get("tool_calls") or []
        if not calls:
            print(message["content"])
            return 0
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            Path(arguments["path"]).write_text(arguments["content"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "written"})
    return 1


if __name__ == "__main__":
    sys.exit(main())
