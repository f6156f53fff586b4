"""fencepost on a terminal, and for programs that start it: `fencepost run`, `resume`, `show` and their kin."""
