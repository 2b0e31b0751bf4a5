"""Logs turned into interest and rates, with every row accounted for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.errors import InputError
from distributary.pipeline.content import content_flows
from distributary.pipeline.content_folder import write_content
from distributary.pipeline.folders import OutputFolder
from distributary.pipeline.ingest import (
    Log,
    RowCounts,
    check_bad,
    check_sum,
    count_rows_at_source,
    read_filters,
    read_publications,
    read_subscriptions,
)
from distributary.pipeline.interest import (
    absent_receivers,
    interest_of,
    resolve_last_actions,
    subscription_counts,
    subscription_digest,
    ties,
)
from distributary.pipeline.job import Job
from distributary.pipeline.rates import (
    flow_counts,
    publication_counts,
    publication_digest,
    published_window,
    rates_for,
    rates_from,
)
from distributary.pipeline.sources import report_read_faults
from distributary.pipeline.steps import say
from distributary.pipeline.writing import count_rows, sort_parts, stage_frame, write_parts

__all__ = ["Inputs", "counts_document", "prepare_inputs"]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The tables made from the logs, and the `facts` about them for the manifest."""

    interest: DataFrame
    rates: DataFrame
    used: DataFrame  # publications: ts, flow, size, and count if the log has it
    facts: dict[str, Any]


def prepare_inputs(spark: SparkSession, job: Job, folder: OutputFolder) -> Inputs:
    """Read the logs of a job and write its interest, rates and quarantine into `folder`."""
    stage = folder.stage
    say(spark, "opening the logs")
    publications = read_publications(
        spark,
        job.publications,
        job.window,
        "all" if job.filters else None,
        shape=job.shapes.publications,
    )
    if job.filters is not None:
        return _prepare_content(spark, job, publications, folder)
    subscriptions = read_subscriptions(
        spark, str(job.subscriptions), job.window, shape=job.shapes.subscriptions
    )

    say(spark, "reading the subscriptions")
    with report_read_faults(subscriptions.source.path):
        digest = stage_frame(subscription_digest(subscriptions), stage / "subscriptions")
    say(spark, "checking the subscriptions")
    counts = subscription_counts(digest)
    check_bad("subscriptions", counts, job.max_bad)
    facts = {"subscriptions": _account_rows(subscriptions, counts, folder)}
    with report_read_faults(subscriptions.source.path):
        tied = ties(digest).limit(1).count()
        state = resolve_last_actions(digest, subscriptions.valid if tied else None)
        if tied:
            state = stage_frame(state, stage / "state")

    say(spark, "reading the publications")
    with report_read_faults(publications.source.path):
        published = stage_frame(
            publication_digest(publications.rows, job.rate_half_life, job.peak_window),
            stage / "publications",
        )
    say(spark, "checking the publications")
    counts = publication_counts(published)
    check_bad("publications", counts, job.max_bad)
    facts["publications"] = _account_rows(publications, counts, folder)

    start, end = _choose_window(job, published)
    moment = max(end, _find_latest(state) or end)
    interest = interest_of(state, moment, job.presence_half_life)
    say(spark, "writing the interest")
    interest = _write_interest(interest, folder, facts)
    if job.presence_half_life is not None:
        gone = absent_receivers(state, moment, job.presence_half_life).count()
        facts["interest"]["forgotten_receivers"] = gone
    rates = rates_from(published, start, end, job.rate_half_life, job.peak_window)
    floor = job.floor or 1 / (end - start).total_seconds()
    say(spark, "writing the rates")
    rates = _write_rates(rates_for(interest, rates, floor), folder)
    facts["window"] = _window_document(start, end)
    facts["rates"] = {"floor": floor, **asdict(flow_counts(interest, published))}
    return Inputs(interest, rates, publications.messages, facts)


def _prepare_content(
    spark: SparkSession, job: Job, publications: Log, folder: OutputFolder
) -> Inputs:
    """Make flows of the sets of filters that events match; the filters' owners want them."""
    stage = folder.stage
    filters = read_filters(spark, str(job.filters), shape=job.shapes.filters)
    say(spark, "matching the filters")
    with report_read_faults(publications.source.path):
        content = content_flows(publications.valid, filters.valid, max_flows=job.max_flows)
        used = stage_frame(content.publications.drop("position"), stage / "matched")
        say(spark, "checking the publications")
        rows = publications.rows.groupBy("reason", "copy").count().collect()
    counts = RowCounts(
        used=sum(r["count"] for r in rows if r["reason"] is None and not r["copy"]),
        duplicates=sum(r["count"] for r in rows if r["reason"] is None and r["copy"]),
        reasons={r["reason"]: r["count"] for r in rows if r["reason"] is not None},
    )
    check_bad("publications", counts, job.max_bad)
    facts: dict[str, Any] = {"publications": _account_rows(publications, counts, folder)}
    say(spark, "checking the filters")
    facts["filters"] = _account_filters(filters, content.quarantine, folder, job.max_bad)
    facts["content"] = content.counts()
    say(spark, "writing the interest")
    interest = _write_interest(write_content(content, folder.local / "content"), folder, facts)
    say(spark, "writing the rates")
    digest = stage_frame(
        publication_digest(_as_rows(used), job.rate_half_life, job.peak_window),
        stage / "publications",
    )
    start, end = _choose_window(job, digest)
    floor = job.floor or 1 / (end - start).total_seconds()
    rates = rates_from(digest, start, end, job.rate_half_life, job.peak_window)
    rates = _write_rates(rates_for(interest, rates, floor), folder)
    content.release()
    facts["window"] = _window_document(start, end)
    facts["rates"] = {"floor": floor, **asdict(flow_counts(interest, digest))}
    return Inputs(interest, rates, used, facts)


def _as_rows(used: DataFrame) -> DataFrame:
    """Usable messages in the shape of a log's rows."""
    return used.withColumns({"reason": F.lit(None).cast("string"), "copy": F.lit(False)})


def _account_filters(
    filters: Log, refused: DataFrame, folder: OutputFolder, max_bad: float
) -> dict[str, Any]:
    rows = filters.rows.groupBy("reason").count().collect()
    reasons = {row["reason"]: row["count"] for row in rows if row["reason"] is not None}
    good = sum(row["count"] for row in rows if row["reason"] is None)
    bad = refused.groupBy("reason").count().collect()
    reasons |= {row["reason"]: row["count"] for row in bad}
    counts = RowCounts(good - sum(row["count"] for row in bad), 0, reasons)
    check_bad("filters", counts, max_bad)
    written = _write_quarantine(
        filters.name, filters.quarantined.unionByName(refused), folder, counts
    )
    read = count_rows_at_source(filters)
    check_sum("filters", read, counts, written)
    return counts_document(filters, counts)


def _account_rows(log: Log, counts: RowCounts, folder: OutputFolder) -> dict[str, Any]:
    """Write the bad rows of a log and check that no row is lost or counted twice."""
    with report_read_faults(log.source.path):
        written = _write_quarantine(log.name, log.quarantined, folder, counts)
        check_sum(log.name, count_rows_at_source(log), counts, written)
    if counts.read == 0:
        raise InputError(f"the {log.name} have no rows", path=log.source.path)
    return counts_document(log, counts)


def counts_document(log: Log, counts: RowCounts) -> dict[str, Any]:
    """What became of a log's rows, for the manifest."""
    return {
        "source": log.source.path,
        "read": counts.read,
        "used": counts.used,
        "duplicates": counts.duplicates,
        "quarantined": counts.quarantined,
        "reasons": dict(counts.reasons),
    }


def _write_quarantine(log: str, bad: DataFrame, folder: OutputFolder, counts: RowCounts) -> int:
    """Write a log's bad rows to the quarantine, if it has any; return their number."""
    if not counts.quarantined:
        return 0
    path = folder.tables / "quarantine" / f"log={log}"
    sort_parts(bad.drop("log"), counts.quarantined, "raw", "file", "reason").parquet(str(path))
    return count_rows(path)


def _choose_window(job: Job, digest: DataFrame) -> tuple[datetime, datetime]:
    found = published_window(digest)
    since, until = job.window.since, job.window.until
    if found is None:
        if since is None or until is None:
            raise InputError(
                "no message can be used, so there is no window to take rates over",
                path=job.publications,
                remedy="mend the log, or name the window with --since and --until",
            )
        return since, until
    return since or found[0], until or found[1]


def _window_document(start: datetime, end: datetime) -> dict[str, Any]:
    return {
        "since": start.astimezone(UTC).isoformat(),
        "until": end.astimezone(UTC).isoformat(),
        "seconds": (end - start).total_seconds(),
    }


def _find_latest(state: DataFrame) -> datetime | None:
    micros = state.agg(F.unix_micros(F.max("ts"))).collect()[0][0]
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def _write_interest(interest: DataFrame, folder: OutputFolder, facts: dict[str, Any]) -> DataFrame:
    interest = write_parts(interest, folder.tables / "interest", "receiver", "flow")
    pairs, receivers, flows = interest.agg(
        F.count(F.lit(1)), F.count_distinct("receiver"), F.count_distinct("flow")
    ).collect()[0]
    if pairs == 0:
        raise InputError(
            "nobody wants anything, so there is nothing to plan",
            remedy="check the reasons in the quarantine, and the window",
        )
    facts["interest"] = {"pairs": pairs, "receivers": receivers, "flows": flows}
    return interest


def _write_rates(rates: DataFrame, folder: OutputFolder) -> DataFrame:
    """Write the rates for all readers: unknown sizes as the mean, unknown peaks as the rate."""
    mean, sized, peaked = rates.agg(
        F.avg("size"), F.min(F.coalesce("size", F.lit(1.0))), F.count("peak")
    ).collect()[0]
    columns = ["flow", "rate"]
    if mean and sized > 0:
        rates = rates.fillna({"size": float(f"{mean:.9g}")})
        columns.append("size")
    if peaked:
        rates = rates.withColumn("peak", F.greatest(F.coalesce("peak", "rate"), F.col("rate")))
        columns.append("peak")
    return write_parts(rates.select(*columns), folder.tables / "rates", "flow")
