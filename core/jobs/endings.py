"""How runs end in the queue: what is recorded of those that were broken off, and every run's metrics."""

from __future__ import annotations

import logging
from dataclasses import replace

from core.errors import EngineFault
from core.jobs.executors import WorkerLost
from core.jobs.job import Job
from core.records import Ended, RunStatus, StopReason, Summary
from core.results.metrics import summarise, violations

LOG = logging.getLogger("speclens.jobs")


def unbegun(reason: StopReason) -> Ended:
    """The end of a run that never left the queue."""
    return Ended(request=0, stop_reason=reason, text="", e2e_s=0.0)


def broken_off(job: Job, reason: StopReason, sentence: str | None) -> Ended:
    """The end of a run whose engine is gone, with what it has put out; ``sentence`` is kept if it ``failed``."""
    text = "".join(piece for round in job.rounds for piece in round.committed_text)
    e2e_s = job.rounds[-1].ended_at_s if job.rounds else 0.0
    error = sentence if reason == "failed" else None
    return Ended(request=0, stop_reason=reason, text=text, e2e_s=e2e_s, error=error)


def why_broken(job: Job, fault: Exception) -> str:
    """Why the engine could not end a run itself, as a sentence."""
    match fault:
        case WorkerLost():
            return f"{fault} {kept(job)}"
        case EngineFault():
            return str(fault)
        case _:
            LOG.error("run %s could not be followed", job.run_id, exc_info=fault)
            return f"The run could not be followed ({type(fault).__name__}: {fault}): see the app's log."


def kept(job: Job) -> str:
    """What is left of a run, as a sentence."""
    count = len(job.rounds)
    return f"The run's {count} whole round{'s are' if count != 1 else ' is'} kept."


def paused_too_long(limit_s: float) -> str:
    """Why a paused run was ended."""
    limit = f"{limit_s / 60:g} minutes" if limit_s >= 60 else f"{limit_s:g} seconds"
    return f"The run was paused for {limit} and nobody resumed it, so it was ended to give its memory back."


def status(reason: StopReason) -> RunStatus:
    """The status of a run that ended so."""
    match reason:
        case "failed" | "cancelled" | "interrupted":
            return reason
        case _:
            return "done"


def summed_up(job: Job, ended: Ended) -> tuple[Ended, Summary | None]:
    """The run's metrics; a run whose records break a conservation law (metrics.md) is failed, whatever it seemed."""
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
