"""Output of a chaos test: violations with the history of their job, and the summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from chaos_faults import ClusterFaults, Operators
from chaos_history import format_history
from chaos_judge import Violation
from chaos_scripts import End, JobScript, spec_of

_MAX_PRINTED_VALUES = 10
# After a restart of the API server an operator that is still the leader should write within this time.
_GOAL_SECONDS = 2.0


def format_violation(violation: Violation, script: JobScript | None, *, seed: int) -> str:
    lines = [f"VIOLATION {violation.rule}: {violation.job}: {violation.description}", f"  seed {seed}"]
    if script is not None:
        faults = {f"{role} {index}": list(faults) for (role, index), faults in script.faults.items()}
        edits = [f"{edit} after {seconds:.1f} s" for seconds, edit in script.edits]
        lines.append(f"  script: {script.end}, decisive {script.decisive}, culprit {script.culprit}, faults {faults}, edits {edits}")
        lines.append(f"  spec: {json.dumps(spec_of(script.kind, script.draft))}, annotations {json.dumps(script.annotations)}")
    if violation.history:
        lines.append(format_history(list(violation.history)))
    return "\n".join(lines)


def format_summary(
    scripts: Sequence[JobScript],
    violations: Sequence[Violation],
    faults: ClusterFaults,
    job_faults: Mapping[str, int],
    operators: Operators,
    *,
    seed: int,
) -> str:
    kills = f"{operators.kills}; other exits by code: {dict(operators.exits) or 'none'}"
    rows = [
        ("seed", str(seed)),
        ("jobs with features", _counts(Counter(name for script in scripts for name in script.draft.features.names))),
        ("faults of the cluster", _counts(faults.counts)),
        ("faults of pods and edits of jobs", _counts(job_faults)),
        ("operators killed", kills),
        ("API server: seconds until ready", format_seconds(faults.restart_seconds)),
        *((f"ready to the first write: {fault}", format_seconds(seconds)) for fault, seconds in sorted(faults.recovery_seconds().items())),
        ("violations", _counts(Counter(violation.rule for violation in violations)) or "0"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join([*_job_table(scripts), "", *(f"{name:{width}}  {value}" for name, value in rows)])


def _job_table(scripts: Sequence[JobScript]) -> list[str]:
    """The number of jobs by kind and scripted end."""
    counts = Counter((f"{script.kind.job_type.kind}.{script.kind.job_type.group}", script.end) for script in scripts)
    kinds = sorted({kind for kind, _ in counts})
    width = max((len(kind) for kind in kinds), default=0)
    lines = [f"{'jobs by kind and end':{width}}  " + "  ".join(End) + "  total"]
    for kind in kinds:
        cells = [f"{counts[kind, end]:>{len(end)}}" for end in End]
        lines.append(f"{kind:{width}}  {'  '.join(cells)}  {sum(counts[kind, end] for end in End):>5}")
    totals = [f"{sum(counts[kind, end] for kind in kinds):>{len(end)}}" for end in End]
    return [*lines, f"{'total':{width}}  {'  '.join(totals)}  {len(scripts):>5}"]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def format_seconds(values: Sequence[float | None]) -> str:
    """Few values, or a summary of many."""
    if len(values) <= _MAX_PRINTED_VALUES:
        return ", ".join("none" if value is None else f"{value:.1f}" for value in values)
    known = [value for value in values if value is not None]
    parts = [f"{len(values)} values"]
    if known:
        above = sum(value > _GOAL_SECONDS for value in known)
        parts.append(f"median {median(known):.1f}, maximum {max(known):.1f}; {above} above {_GOAL_SECONDS:.0f} s")
    if len(known) < len(values):
        parts.append(f"{len(values) - len(known)} none")
    return ", ".join(parts)
