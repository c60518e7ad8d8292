"""The simulation study: does every kind of printed interval cover, do families err as seldom as they claim?

`python -m tests.proof` runs 10,000 replications and writes the table into docs/statistics.md; the slow test runs 2,000."""
