"""Enqueues two jobs, each in a transaction with a row. The second transaction rolls back."""

import sys

import psycopg
from psycopg.types.json import Jsonb

with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    for number, keep in ((1, True), (2, False)):
        with conn.transaction(force_rollback=not keep):
            conn.execute("INSERT INTO sent (number, who) VALUES (%s, 'python')", (number,))
            conn.execute(
                "SELECT honker.enqueue(%s, %s, headers => %s, priority => %s)",
                ("mails", Jsonb({"number": number}), Jsonb({"from": "python"}), number),
            )
    try:
        conn.execute("SELECT honker.enqueue('', %s)", (Jsonb({}),))
    except psycopg.errors.InvalidParameterValue as err:
        assert "the queue name is empty" in str(err), err
    else:
        raise AssertionError("an empty name is accepted")
