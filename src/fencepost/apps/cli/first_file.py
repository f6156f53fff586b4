"""The configuration file that `fencepost init` writes: every key that there is, with what it is for.

What is behind a lone `#` has its default, or an example where there is none; take the `#` away to set it. A test keeps
this complete: each key of the configuration and of every plugin that ships stands here, and all of it together is read
without a complaint.
"""

from __future__ import annotations

import json
from typing import Final

TEXT: Final = """\
# fencepost: what is used in this directory. `fencepost config` shows what is in force, `fencepost doctor` checks it.
# A line behind a lone # is not in force; take the # away to set it.

# The model. --model and FENCEPOST_MODEL override it. Keys are in the environment, never here.
#     anthropic:NAME, openai:NAME, deepseek:NAME    ANTHROPIC_API_KEY, OPENAI_API_KEY, DEEPSEEK_API_KEY
#     openai:NAME with OPENAI_BASE_URL              any endpoint that speaks chat completions
#     local:./FILE.gguf                             on this machine, without key and network
#     script:./FILE.jsonl                           answers from a file
#model = "anthropic:claude-sonnet-4-5"

# Where sessions are kept: jsonl:DIR, sqlite:FILE, postgresql://…; memory: saves nothing.
#store = "jsonl:./sessions"

# Which calls run: ask (about all but reading ones), read (only reading ones), all, none.
#approve = "ask"

# `fencepost delete` destroys what was deleted longer ago than so many days; without this, nothing is.
#purge_days = 30

# What the model is told about its work, in place of the usual.
#system = "You work carefully."

# Which plugins are composed, in place of all of these. `http` is one more; others come with packages.
#plugins = [
#    "models", "checkpoint", "retry", "rules", "budget", "repeats", "approval", "compaction", "files", "shell", "mcp",
#]

# Sent with every model request, under the names that the provider gives them.
#[settings]
#temperature = 0.2
#max_tokens = 8192
#thinking = { type = "adaptive" }   # anthropic: let it think
#n_ctx = 16384                      # local: tokens of context, not sent

# A model request that failed and may be sent again.
#[plugin.retry]
#attempts = 5        # requests in all
#base = 0.5          # seconds before the first retry; doubled for each further one
#limit = 20.0        # seconds between two of them at most
#patience = 120.0    # seconds that a provider may ask for at most

# Calls that never run, and calls that run without asking. Deny wins over allow, and allow over asking.
#[plugin.rules]
#deny = [{ tool = "shell", command = "git push" }, { tool = "*", path = "secrets/**" }]
#allow = [{ tool = "shell", command = "git status *" }]

# Of one turn at most; what is left out is not limited.
#[plugin.budget]
#calls = 100
#seconds = 1800
#tokens = 500000

# How often the same call may have the same result in a row; 0: always.
#[plugin.repeats]
#same = 5

# When the transcript nears what the model's context holds, its beginning is summed up.
#[plugin.compaction]
#limit = 200000      # tokens that it holds; without this nothing is summed up by itself
#at = 0.8            # the part of them at which that happens
#keep = 4            # newest steps that stay as they are

# Commands that the model runs.
#[plugin.shell]
#timeout = 120.0     # seconds that a command gets if the model does not say
#limit = 3600.0      # seconds that it may ask for at most
#on_crash = "finish" # when the agent is killed a command runs to its end; or "end"

# The tool `http_request`, where `plugins` names `http`.
#[plugin.http]
#timeout = 30.0
#limit = 300.0
#private = ["*.corp.example"]   # more names that lead into private networks; a person is asked about them

# Servers of the Model Context Protocol. ${NAME} is put in from the environment when a server is started.
#[plugin.mcp.servers.git]
#command = "mcp-server-git"
#args = ["--repository", "."]
#env = { GIT_TOKEN = "${GIT_TOKEN}" }
#cwd = "."
#[plugin.mcp.servers.wiki]
#url = "https://wiki.example/mcp"
#headers = { Authorization = "Bearer ${WIKI_TOKEN}" }
#tools = ["search", "read"]     # only these; all of them, if left out
#timeout = 60                   # seconds for one call
#start_timeout = 20             # seconds until it has told its tools
#effects = { search = "read" }  # in place of what the server says of them

# What `fencepost export --redact` hides beside what it knows: regular expressions.
#[redact]
#patterns = ["ACME-[0-9]{6}"]
"""


def first_file(**chosen: str | None) -> str:
    """The file, with the values that were chosen in force.

    Args:
        chosen: values by key; None leaves the line as it is.
    """
    lines = TEXT.splitlines(keepends=True)
    given = {key: f"{key} = {toml_text(value)}\n" for key, value in chosen.items() if value is not None}
    return "".join(next((new for key, new in given.items() if line.startswith(f"#{key} = ")), line) for line in lines)


def toml_text(value: str) -> str:
    """A text in TOML, whose basic strings are those of JSON but for the one letter that JSON lets stand as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
