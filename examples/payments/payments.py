"""Books payments in PostgreSQL and in a topic together: `python payments.py BOOTSTRAP DSN LAST`.

Each payment is a row of the table `payments` if and only if it is a record of the topic `payments`, wherever this
program is killed (KIP-939). PostgreSQL decides: the state of the prepared Kafka transaction is stored in the commit of
the rows. A program that starts compares that state with the transaction it finds open, and commits or aborts it.

The brokers need `transaction.two.phase.commit.enable=true`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import psycopg

from barnabas import PreparedTxnState
from barnabas.sync import Producer

TOPIC, TRANSACTIONAL_ID, AT_ONCE = "payments", "bookkeeper", 10

TABLES = """
CREATE TABLE IF NOT EXISTS payments (id bigint PRIMARY KEY, amount bigint NOT NULL);
CREATE TABLE IF NOT EXISTS prepared (transactional_id text PRIMARY KEY, state text NOT NULL);
"""
DECIDE = """
INSERT INTO prepared VALUES (%s, %s) ON CONFLICT (transactional_id) DO UPDATE SET state = EXCLUDED.state
"""

Step = Callable[[str], object]
"""Called with the name of each step that was taken; tests kill the program there."""


def decided_state(database: psycopg.Connection) -> PreparedTxnState:
    """The Kafka transaction of the last commit; empty before the first one."""
    row = database.execute("SELECT state FROM prepared WHERE transactional_id = %s", [TRANSACTIONAL_ID]).fetchone()
    return PreparedTxnState.parse(row[0] if row else "")


def amount_of(payment: int) -> int:
    return payment * 7 % 100


def book(database: psycopg.Connection, producer: Producer, payments: range, step: Step) -> None:
    """Book some payments: all of them in both places, or none in either."""
    producer.begin_transaction()
    for payment in payments:
        value = json.dumps({"id": payment, "amount": amount_of(payment)}).encode()
        producer.enqueue(TOPIC, value, key=b"%d" % payment)
    step("sent")
    prepared = producer.prepare_transaction()
    step("prepared")
    with database.transaction():
        with database.cursor() as cursor:
            rows = [(payment, amount_of(payment)) for payment in payments]
            cursor.executemany("INSERT INTO payments VALUES (%s, %s)", rows)
            cursor.execute(DECIDE, [TRANSACTIONAL_ID, str(prepared)])
        step("written")
    step("decided")
    producer.complete_transaction(prepared)
    step("completed")


def run(bootstrap_servers: str, dsn: str, last: int, step: Step = lambda _: None) -> None:
    """Book the payments up to `last`, from where the last run ended."""
    with psycopg.connect(dsn, autocommit=True) as database:
        # The commit of a program that was killed may still be on its way. It is over when its session is.
        database.execute("SELECT pg_advisory_lock(hashtext(%s))", [TRANSACTIONAL_ID])
        database.execute(TABLES)
        with Producer(
            bootstrap_servers=bootstrap_servers,
            transactional_id=TRANSACTIONAL_ID,
            transaction_two_phase_commit_enable=True,
        ) as producer:
            producer.init_transactions(keep_prepared=True)
            step("recovering")
            producer.complete_transaction(decided_state(database))
            step("recovered")
            (done,) = database.execute("SELECT coalesce(max(id), 0) FROM payments").fetchone()
            for first in range(done + 1, last + 1, AT_ONCE):
                book(database, producer, range(first, min(first + AT_ONCE, last + 1)), step)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]))
