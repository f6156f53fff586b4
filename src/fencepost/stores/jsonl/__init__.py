"""Sessions as files: `<root>/<session>/log.jsonl`, one JSON object a line, readable with `jq`.

Reading path: `layout` (names), `frame` (bytes to entries), `logfile` (entries to durable bytes), `handle` and `store`
(the contract of `stores.base` over those).
"""

from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.store import JsonlStore

__all__ = ["Disk", "JsonlStore"]
