"""The example's harness: names a door, lets the model call its tool, and names the next one. Nothing but Python.

    harness.py TASKS        with GYRE_TASK and what else gyre sets for a harness

A call takes as long as a tool might: a second or so, sometimes many. Each door that is taken is noted in `taken`. It
never asks twice: an answer that does not come, or is no answer, is noted in `walk.json` and ends it with exit code 1.
"""

import json
import math
import os
import random
import sys
import time
import urllib.request
from pathlib import Path

TOOL = {
    "type": "function",
    "function": {
        "name": "go",
        "description": "Go on.",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
    },
}
MEDIAN_S, SPREAD, MOST_S = 0.8, 0.8, 8.0  # of a call's time, which is lognormal
REPLY_S = 300.0


def ask(messages):
    """Return what the model says next."""
    body = {"model": os.environ["GYRE_MODEL"], "messages": messages, "tools": [TOOL]}
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=REPLY_S) as answer:
        return json.load(answer)["choices"][0]["message"]


def taken_door(message):
    """Return where the model goes, None where it called no tool as it should."""
    calls = message.get("tool_calls") or []
    try:
        arguments = json.loads(calls[0]["function"]["arguments"]) if len(calls) == 1 else None
        return arguments["to"] if arguments["to"].isprintable() else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def work(draws):
    """Take the time of a tool."""
    time.sleep(min(MOST_S, MEDIAN_S * math.exp(SPREAD * draws.gauss(0, 1))))


def walk(doors, taken):
    """Go through the doors; what the model takes is written to `taken`, a door a line."""
    draws = random.Random(os.environ["GYRE_EXECUTION"])
    messages = [{"role": "user", "content": doors[0]}]
    for following in [*doors[1:], ""]:
        message = ask(messages)
        door = taken_door(message)
        if door is None:
            return
        print(door, file=taken, flush=True)
        work(draws)
        (call,) = message["tool_calls"]
        messages.append({"role": "assistant", "content": message.get("content"), "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": following})


def main():
    """Return the exit code."""
    lines = map(json.loads, Path(sys.argv[1]).read_text().splitlines())
    doors = next(line["data"]["doors"] for line in lines if line["name"] == os.environ["GYRE_TASK"])
    error = None
    try:
        with open("taken", "w", encoding="utf-8") as taken:
            walk(doors, taken)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
        print(error, file=sys.stderr)
    Path("walk.json").write_text(json.dumps({"error": error}))
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
