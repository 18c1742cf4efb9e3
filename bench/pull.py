"""Claims jobs of the queue "bench" and acks them: FILE batches|jobs MOST N SECONDS. Prints their number and the time."""

import asyncio
import sys
import time

import honker

path, kind, most, n, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
queue = honker.open(path).queue("bench")


def batches():
    acked = 0
    while acked < n and time.perf_counter() - began < limit:
        jobs = queue.claim_batch("bench", most)
        acked += queue.ack_batch([job.id for job in jobs], "bench")
    return acked


async def jobs():
    acked = 0
    async for job in queue.claim("bench"):
        acked += job.ack()
        if acked == n or time.perf_counter() - began >= limit:
            return acked


began = time.perf_counter()
acked = batches() if kind == "batches" else asyncio.run(jobs())
print(acked, time.perf_counter() - began)
