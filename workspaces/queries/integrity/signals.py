"""Rules of signals: what needs a person stands as signalled exactly while it does. What alerts make of them: alerts.py.

What is older than the signals themselves was signalled by nobody.
"""

from __future__ import annotations

from .rule import Rule

SINCE = "(SELECT applied FROM django_migrations WHERE app = 'workspaces' AND name = '0035_alerts')"
KEPT = "interval '7 days'"  # less than what is over is kept (actions/alert_signals.py)


def newest(kind: str, subject: str, name: str = "told") -> str:
    """The newest signal of a trouble, as `name`."""
    return f"""LEFT JOIN LATERAL (
            SELECT edge, severity, edge IN ('began', 'worse') AS stands FROM workspaces_alertsignal AS s
             WHERE s.subject = {subject} AND s.kind = '{kind}' ORDER BY s.id DESC LIMIT 1) AS {name} ON TRUE"""  # noqa: S608


RULES = [
    Rule(
        "signalled-incidents",
        "an incident stands as signalled, with its severity, until it is resolved",
        "incident",
        f"""
        SELECT i.task_id, format('incident %s is %s (%s), and the newest signal of it says: %s (%s)', i.id, i.state,
                                 i.severity, coalesce(told.edge, 'none'), told.severity)
          FROM workspaces_incident AS i {newest("incident", "'incident:' || i.id")}
         WHERE :task(i.task_id) AND i.opened_at >= {SINCE}
           AND ((i.state <> 'resolved') <> coalesce(told.stands, FALSE)
                OR i.state <> 'resolved' AND i.severity <> told.severity)
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "signalled-questions",
        "a question stands as signalled while it is open, and as overdue from when an owner was asked",
        "escalation",
        f"""
        SELECT e.task_id, format('question %s (%s) is %s, and the newest signals of it say: %s; overdue: %s', e.id,
                                 e.kind, e.status, coalesce(told.edge, 'none'), coalesce(late.edge, 'none'))
          FROM workspaces_escalation AS e {newest("escalation_opened", "'escalation:' || e.id")}
          {newest("escalation_overdue", "'overdue:' || e.id", "late")}
         WHERE :task(e.task_id) AND e.opened_at >= {SINCE}
           AND ((e.status = 'open') <> coalesce(told.stands, FALSE)
                OR e.status = 'open' AND (e.raised_at IS NOT NULL) <> coalesce(late.stands, FALSE)
                OR e.status IN ('answered', 'withdrawn') AND late.stands)
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "signalled-ends",
        "a task's end was signalled, and a failure stands as signalled only while the task is failed",
        "task",
        f"""
        SELECT t.id, format('it is %s, and the newest signals of its end say: failed %s, finished %s', t.status,
                            coalesce(told.edge, 'none'), coalesce(done.edge, 'none'))
          FROM workspaces_task AS t {newest("task_failed", "'failed:' || t.id")}
          {newest("task_finished", "'finished:' || t.id", "done")}
         WHERE :task(t.id) AND (t.status <> 'failed' AND told.stands
               OR t.finished_at >= {SINCE} AND t.finished_at > now() - {KEPT}
                  AND (t.status = 'failed' AND told.edge IS NULL OR t.status = 'succeeded' AND done.edge IS NULL))
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "signalled-budgets",
        "each threshold that a budget has passed was signalled, and a used up one stands so until it has room",
        "budgetaccount",
        f"""
        SELECT budget.task_id, format('account %s (%s of budget %s): %s, and the newest signals say: threshold %s, '
               'limit %s', account.id, account.period_key, budget.id, account.alerted, coalesce(told.edge, 'none'),
               coalesce(full_up.edge, 'none'))
          FROM workspaces_budgetaccount AS account
          JOIN workspaces_budget AS budget ON budget.id = account.budget_id
          {newest("budget_threshold", "'threshold:' || account.id")}
          {newest("budget_exhausted", "'limit:' || account.id", "full_up")}
         WHERE :task(budget.task_id)
           AND (budget.ended_at IS NULL AND (account.ends_at IS NULL OR account.ends_at > now())
                AND (account.exhausted_at >= {SINCE} AND NOT coalesce(full_up.stands, FALSE)
                     OR EXISTS (SELECT FROM jsonb_array_elements(account.alerted) AS passed
                                 WHERE (passed->>'at')::timestamptz >= greatest({SINCE}, now() - {KEPT})
                                   AND NOT EXISTS (
                                       SELECT FROM workspaces_alertsignal AS s
                                        WHERE s.subject = 'threshold:' || account.id AND s.kind = 'budget_threshold'
                                          AND s.at = (passed->>'at')::timestamptz)))
                OR (account.alerted = '[]' OR budget.ended_at IS NOT NULL) AND told.stands
                OR (account.exhausted_at IS NULL OR budget.ended_at IS NOT NULL) AND full_up.stands)
        """,  # noqa: S608 - no value from outside is in it
    ),
]
