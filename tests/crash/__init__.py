"""Crashes, and what the log says after them.

Reading path: `scenario` (an agent, and what the world saw of it), `boundaries` (a copy of the store's directory at
every place where a process can die), `judging` (what a fresh process makes of such a copy), `laws` (design.md,
section 2, as checks). Then the tests: enumerated kill points, simulated power cuts, real SIGKILLs, real power cuts,
and `soak`.
"""
