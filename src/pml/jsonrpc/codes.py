"""Error codes: those of JSON-RPC itself, those that MCP adds, and those that clients and SDKs agree on.

Every code that PML sends or understands has its name here and nowhere else.
"""

from typing import Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_ERROR: Final = -32000  # the first of those that a server may give a meaning of its own

UNKNOWN_SESSION: Final = -32001  # as the SDKs call a session that is not there
UNKNOWN_RESOURCE: Final = -32002  # until 2025-11-25; then it is a parameter like another
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021  # of the client, which a server reported
UNSUPPORTED_VERSION: Final = -32022
URL_FORM_REQUIRED: Final = -32042  # "elicitation by URL required": its data is a form
REQUEST_CANCELLED: Final = -32800  # not MCP's: an answer to a request that the client itself cancelled
