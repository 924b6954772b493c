"""What answers a rule's question in a process of its own; each module stands alone, on the standard library.

`judge(question)` takes and returns JSON values: `passed` (a share) and `detail`, or `broken` with the reason why the
rule itself does not work.
"""
