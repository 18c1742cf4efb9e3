"""A test process that uses honker's Python package: peer.py FILE ROLE [ARGUMENT]...

It communicates in lines and exits when its stdin is closed. Most roles first print "ready".
"""

import asyncio
import json
import os
import sys
import threading
import time

import honker

db = honker.open(sys.argv[1])
role, args = sys.argv[2], sys.argv[3:]
over = asyncio.Event()  # stops the scheduler, whose loop may swallow a cancellation


def say(*words):
    print(*words, flush=True)


async def work(queue, worker, lease):
    """Claims jobs one at a time and prints each payload before the ack."""
    claims = db.queue(queue, visibility_timeout_s=int(lease)).claim(worker, idle_poll_s=None)
    say("ready")
    async for job in claims:
        say(json.dumps(job.payload))
        if not job.ack():
            say("lost")


async def hold(queue, worker, lease):
    """Claims a job and keeps it."""
    async for job in db.queue(queue, visibility_timeout_s=int(lease)).claim(worker, idle_poll_s=None):
        say("held", json.dumps(job.payload))
        await asyncio.Event().wait()


async def listen(channel):
    messages = db.listen(channel, fallback_poll_s=None)
    say("ready")
    async for message in messages:
        say(json.dumps(message.payload))


async def subscribe(topic, consumer):
    """Prints each event. The offset of an event is saved when the next is requested."""
    events = db.stream(topic).subscribe(consumer, save_every_n=1)
    say("ready")
    async for event in events:
        say(json.dumps(event.payload))


async def lock(name, ttl):
    try:
        with db.lock(name, ttl=int(ttl)):
            say("held")
            await asyncio.Event().wait()
    except honker.LockHeld:
        say("refused")


async def lead():
    """Runs the scheduler with the schedules of the file."""
    try:
        say("ready")
        await honker.Scheduler(db).run(over)
    except honker.LockHeld:
        say("refused")


async def answer():
    """Answers calls. Each line is a JSON array [verb, argument...]."""
    say("ready")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, *rest = json.loads(line)
        try:
            say(json.dumps({"value": verbs[verb](*rest)}))
        except Exception as e:
            say(json.dumps({"error": str(e)}))


def run_sql(query, params):
    with db.transaction() as tx:
        return [list(row.values()) for row in tx.query(query, params)]


def run_statement(query):
    with db.transaction() as tx:
        tx.execute(query)


def notify(channel, payload):
    with db.transaction() as tx:
        return tx.notify(channel, payload)


verbs = {
    "sql": run_sql,
    "statement": run_statement,
    "enqueue": lambda queue, payload: db.queue(queue).enqueue(payload),
    "save result": lambda queue, job, value: db.queue(queue).save_result(job, value),
    "get result": lambda queue, job: db.queue(queue).get_result(job),
    "publish": lambda topic, payload, key: db.stream(topic).publish(payload, key=key),
    "offset": lambda topic, consumer: db.stream(topic).get_offset(consumer),
    "notify": notify,
}


async def main():
    task = asyncio.create_task(globals()[role](*args))
    if role != "answer":
        loop = asyncio.get_running_loop()

        def end():
            over.set()
            if role != "lead":
                task.cancel()

        def wait_for_end():
            sys.stdin.read()
            loop.call_soon_threadsafe(end)
            time.sleep(10)
            os._exit(1)  # the task does not end

        threading.Thread(target=wait_for_end, daemon=True).start()
    try:
        await task
    except asyncio.CancelledError:
        pass


asyncio.run(main())
db.close()
os._exit(0)  # the thread may still be reading
