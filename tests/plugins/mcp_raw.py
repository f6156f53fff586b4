"""A server without an SDK, for what no SDK would do on the wire. It speaks the 2025 protocol, by hand.

Its one tool `do` has an argument `how`:
    long N      answers with a line of N bytes
    chatter     prints what is no message, then answers
    garbled     answers with a result that is none
    mute        closes its stdout and stays
    error N     answers with a protocol error of that code
    pages       (listed on a second page, as `more`)
"""

import json
import os
import sys
import time

TOOL = {"name": "do", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "destructiveHint": True}}


def say(message):
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def do(number, how, size=0):
    if how == "long":
        say({"id": number, "result": text("x" * size)})
    elif how == "chatter":
        sys.stdout.buffer.write(b"\nlistening on port 1\n\xff\xfe\n[]\n")
        say({"id": number, "result": text("heard \u2028 well")})
    elif how == "garbled":
        say({"id": number, "result": {"content": "none"}})
    elif how == "mute":
        os.close(1)
        time.sleep(1000)
    elif how == "error":
        say({"id": number, "error": {"code": size, "message": "no"}})


def main():
    if sys.argv[1:] == ["dumb"]:
        time.sleep(1000)
    if sys.argv[1:] == ["rude"]:
        print("I need a licence", file=sys.stderr)
        sys.exit(3)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        number, params = request.get("id"), request.get("params", {})
        match request["method"]:
            case "initialize":
                about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                say({"id": number, "result": {**about, "serverInfo": {"name": "raw", "version": "0"}}})
            case "tools/list":
                second = {"tools": [{"name": "a.b/c", "inputSchema": {"type": "object"}}]}
                say({"id": number, "result": second if "cursor" in params else {"tools": [TOOL], "nextCursor": "2"}})
            case "tools/call":
                do(number, **params["arguments"])
            case _ if number is not None:
                say({"id": number, "error": {"code": -32601, "message": "no such method"}})


main()
