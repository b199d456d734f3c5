"""A run as shown on the pages, whether it is decoding now or stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from core.jobs.queue import JobView
from core.records import TERMINAL, Fingerprint, Round, RunStatus, Summary
from core.results.matching import measured_speed_up
from core.results.metrics import progress
from core.rules.degenerate import changes_output
from core.run_id import is_run_id
from core.types import ChainShape, EarlyExitDrafter, NoDrafter, RunSpec
from pages.ui.kit.services import Services
from storage.queries import StoredRun


@dataclass(frozen=True, slots=True)
class Shown:
    """A run at one moment. ``total``: number of whole rounds. ``kept_in``: source of its rounds, ``jobs`` or ``store``;
    ``session``: the app process that decoded it."""

    run_id: str
    spec: RunSpec
    status: RunStatus
    total: int
    kept_in: str
    session: str
    position: int = 0
    message: str = ""
    progress: float | None = None
    summary: Summary | None = None
    error: str | None = None
    recomputed_share: float | None = None
    fingerprint: Fingerprint | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    paused: bool = False
    """Whether the run is paused and decodes only single steps."""

    @property
    def active(self) -> bool:
        """Whether the run is queued or running."""
        return self.status not in TERMINAL

    @property
    def halted(self) -> bool:
        """Whether the pause has taken effect: the prompt is in the cache and the device is free."""
        return self.paused and self.status == "running" and self.summary is not None

    @property
    def plain(self) -> bool:
        """Whether this is plain decoding, which drafts nothing."""
        return isinstance(self.spec.request.drafter, NoDrafter)

    @property
    def chain(self) -> bool:
        """Whether the run drafts one path per round, for which the draft acceptance rate is the right metric
        (metrics.md)."""
        return isinstance(self.spec.request.shape, ChainShape)

    @property
    def early_exit(self) -> bool:
        """Whether the run drafts with the target's own first layers."""
        return isinstance(self.spec.request.drafter, EarlyExitDrafter)

    @property
    def lossy(self) -> bool:
        """Whether the rule can change the distribution of this run's output."""
        return changes_output(self.spec.request)


def valid_id(text: str | None) -> str | None:
    """``text`` if it has the form of a run id, else None; ids in links are user input."""
    return text if text is not None and is_run_id(text) else None


def find(services: Services, run_id: str) -> Shown | None:
    """The run from this app's queue, else from the store. Raises StorageUnavailable if the store can't be read."""
    if run_id in services.gone:
        return None
    view = services.jobs.view(run_id)
    if view is not None:
        so_far = services.jobs.rounds(run_id) if view.started and not view.summary else ()
        return of_job(view, services.session, so_far)
    stored = services.runs.get(run_id) if services.runs else None
    return of_stored(stored) if stored else None


def rounds(services: Services, run: Shown, start: int = 0, limit: int | None = None) -> Sequence[Round]:
    """Whole rounds ``start`` … ``start + limit − 1``."""
    if run.kept_in == "jobs":
        kept = services.jobs.rounds(run.run_id, start)
        if kept or start >= run.total:
            return kept[:limit]
    return services.runs.rounds(run.run_id, start, limit) if services.runs else ()


def speed_up(services: Services, run: Shown, beside: Sequence[Shown] = ()) -> float | None:
    """The run's measured speed-up (×) against its matched plain run among ``beside``, else the latest stored match."""
    return measured_speed_up(run, chain(beside, _stored_plain(services, run)))


def _stored_plain(services: Services, run: Shown) -> Iterator[StoredRun]:
    """Yield the matching stored plain run, if any; read from the store only when iterated."""
    if services.runs is not None and run.fingerprint is not None:
        plain = services.runs.plain_for(run.fingerprint, run.session)
        if plain is not None:
            yield plain


def of_job(view: JobView, session: str, so_far: Sequence[Round] = ()) -> Shown:
    """A run of this app; while it runs, its metrics are those of its rounds ``so_far``."""
    summary = view.summary
    if summary is None and view.started is not None:
        summary = progress(view.started, so_far)
    return Shown(
        run_id=view.run_id,
        spec=view.spec,
        status=view.status,
        total=view.rounds,
        kept_in="jobs",
        session=session,
        position=view.position,
        message=view.message,
        progress=view.progress,
        summary=summary,
        error=view.ended.error if view.ended else None,
        recomputed_share=view.started.recomputed_share if view.started else None,
        fingerprint=view.started.fingerprint if view.started else None,
        submitted_at=view.submitted_at,
        started_at=view.started_at,
        ended_at=view.ended_at,
        paused=view.paused,
    )


def of_stored(run: StoredRun) -> Shown:
    """A stored run."""
    return Shown(
        run_id=run.run_id,
        spec=run.spec,
        status=run.status,
        total=run.summary.rounds if run.summary else 0,
        kept_in="store",
        session=run.session,
        summary=run.summary,
        error=run.error,
        recomputed_share=run.recomputed_share,
        fingerprint=run.fingerprint,
        submitted_at=run.submitted_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )
