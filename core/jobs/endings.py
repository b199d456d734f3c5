"""How runs end in the queue: the end of a run that was broken off, the reasons in words, and every run's metrics."""

from __future__ import annotations

import logging
from dataclasses import replace

from core.errors import EngineFault
from core.jobs.executors import WorkerLost
from core.jobs.queue import Job
from core.records import Ended, StopReason, Summary, ended_early
from core.results.metrics import summarise, violations

LOG = logging.getLogger("speclens.jobs")


def broken_off(job: Job, fault: Exception, *, closing: bool) -> Ended:
    """The end of a run whose engine is gone: by the person's wish if there was one, else failed with a sentence."""
    reason: StopReason = "cancelled" if job.cancelling else "interrupted" if closing else "failed"
    match fault:
        case WorkerLost():
            sentence = f"{fault} {_kept(job)}"
        case EngineFault():
            sentence = str(fault)
        case _:
            LOG.error("run %s could not be followed", job.run_id, exc_info=fault)
            sentence = f"The run could not be followed ({type(fault).__name__}: {fault}): see the app's log."
    return ended_early(job.rounds, reason, sentence if reason == "failed" else None)


def final(job: Job, ended: Ended, *, closing: bool) -> tuple[Ended, Summary | None]:
    """The run's end as it is recorded, and its metrics, None for a run that never started.

    A cancel that no person asked for is explained or, when the app is ``closing``, an interruption. A run whose records
    break a conservation law (metrics.md) has failed, whatever its engine reported.
    """
    if ended.stop_reason == "cancelled" and job.why is not None:
        ended = replace(ended, error=f"{job.why} {_kept(job)}")
    elif ended.stop_reason == "cancelled" and closing and not job.cancelling:
        ended = replace(ended, stop_reason="interrupted")
    if job.started is None:
        return ended, None
    try:
        summary = summarise(job.started, job.rounds, ended)
        broken = "; ".join(violations(summary, job.rounds))
    except Exception as bug:
        LOG.exception("run %s has no summary", job.run_id)
        summary, broken = None, f"{type(bug).__name__}: {bug}"
    if not broken:
        return ended, summary
    sentence = f"The run's records don't add up ({broken}): please report this with the run's settings."
    LOG.error("run %s: %s", job.run_id, sentence)
    ended = replace(ended, stop_reason="failed", error=ended.error or sentence)
    return ended, summary and replace(summary, stop_reason="failed")


def paused_too_long(limit_s: float) -> str:
    """Why a paused run was ended."""
    limit = f"{limit_s / 60:g} minutes" if limit_s >= 60 else f"{limit_s:g} seconds"
    return f"The run was paused for {limit} and nobody resumed it, so it was ended to give its memory back."


def _kept(job: Job) -> str:
    count = len(job.rounds)
    return f"The run's {count} whole round{'s are' if count != 1 else ' is'} kept."
