"""Turns a fleet's journals into tables, with PySpark.

- `spark` starts Spark. `lines` reads a journal's segments, and `warehouse` keeps the tables.
- `tables` turns the lines into tables, a file for each concept: pure functions from frames to a
  frame.
- `survey` measures the fleet from the tables, and `advice` recommends settings.
- `jobs` runs all of them for some days.
- `report` makes a page from the tables.

`schema` is the contract of the tables. Needs the extra `[pipeline]`. From the rest of the package
it uses only the journal's contract, and the rules of leases.
"""
