"""`python -m bench [--quick]`: every benchmark, ours and what it is compared with in one run."""

import sys

from bench import code, gateways, hub, lists, loading, pairs, pending, pressure, remote, verdicts, wakeups
from bench.table import print_table

quick = "--quick" in sys.argv[1:]
print_table(
    [
        *verdicts.rows(quick=quick),
        *pairs.rows(quick=quick),
        *wakeups.rows(quick=quick),
        *pending.rows(quick=quick),
        *gateways.rows(quick=quick),
        *remote.rows(quick=quick),
        *lists.rows(quick=quick),
        *loading.rows(quick=quick),
        *hub.rows(quick=quick),
        *pressure.rows(quick=quick),
        *code.rows(quick=quick),
    ]
)
