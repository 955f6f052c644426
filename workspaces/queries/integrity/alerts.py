"""Rules of alerts: each is what its troubles and its history say, and who was to be told was."""

from __future__ import annotations

from .rule import Rule

SENT_KEPT = "interval '60 days'"  # less than what was sent is kept (actions/deliveries.py)
# an alert is of every task that has a trouble in it
OF = "EXISTS (SELECT FROM workspaces_alertmember AS mine WHERE mine.alert_id = a.id AND :task(mine.task_id))"

RULES = [
    Rule(
        "alert-troubles",
        "an alert counts its troubles, and those that go on",
        "alert",
        f"""
        SELECT NULL::bigint, format('alert %s says that %s of %s troubles go on, there are %s of %s', a.id, a.active,
                                    a.troubles, m.active, m.troubles)
          FROM workspaces_alert AS a
         CROSS JOIN LATERAL (SELECT count(*) AS troubles, count(*) FILTER (WHERE ended_at IS NULL) AS active
                               FROM workspaces_alertmember WHERE alert_id = a.id) AS m
         WHERE {OF} AND (a.troubles, a.active) <> (m.troubles, m.active)
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "alert-once",
        "of a rule's group at most one alert is not resolved",
        "alert",
        f"""
        SELECT NULL::bigint, format('rule %s has %s alerts of %s that are not resolved', a.rule_id, count(*),
                                    a.group_key)
          FROM workspaces_alert AS a WHERE {OF} AND a.state <> 'resolved'
         GROUP BY a.rule_id, a.group_key HAVING count(*) > 1
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "alert-ends",
        "an alert is resolved when nothing goes on in it, or by a person; one that is not resolved has something",
        "alert",
        f"""
        SELECT NULL::bigint, format('alert %s is %s, and %s troubles go on', a.id, a.state, a.active)
          FROM workspaces_alert AS a
         WHERE {OF} AND CASE WHEN a.state = 'resolved' THEN a.active > 0 AND a.resolved_by_id IS NULL
                             ELSE a.active = 0 END
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "alert-history",
        "an alert's changes are numbered 1, 2, 3 …, and its state is what they lead to",
        "alert",
        f"""
        SELECT NULL::bigint, format('alert %s is %s with %s changes, its history has %s, the last %s, and leads to %s',
                                    a.id, a.state, a.last_change, c.changes, c.last, c.leads_to)
          FROM workspaces_alert AS a
         CROSS JOIN LATERAL (
               SELECT count(*) AS changes, coalesce(max(number), 0) AS last,
                      coalesce((array_agg(CASE kind WHEN 'acknowledged' THEN 'acknowledged' WHEN 'resolved'
                                               THEN 'resolved' ELSE 'open' END ORDER BY number DESC)
                                FILTER (WHERE kind IN ('opened', 'reopened', 'acknowledged', 'resolved')))[1],
                               'pending') AS leads_to,
                      count(*) FILTER (WHERE kind = 'reopened') AS reopened,
                      min(kind) FILTER (WHERE number = 1) AS first
                 FROM workspaces_alertchange WHERE alert_id = a.id) AS c
         WHERE {OF} AND (c.changes <> a.last_change OR c.last <> a.last_change OR c.reopened <> a.reopened
               OR c.first <> 'opened'
               OR c.leads_to <> a.state AND NOT (a.state = 'pending' AND c.leads_to = 'resolved'))
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "alert-told",
        "what of an alert was told to somebody has its deliveries, and nothing else has",
        "alert",
        f"""
        SELECT NULL::bigint, format('change %s of alert %s says %s, and it has %s deliveries', c.number, a.id,
                                    coalesce(c.payload->>'type', 'nothing'), d.of_it)
          FROM workspaces_alert AS a JOIN workspaces_alertchange AS c ON c.alert_id = a.id
         CROSS JOIN LATERAL (SELECT count(*) AS of_it, count(*) FILTER (WHERE alert_id = a.id AND number = c.number
                                                                        AND type = c.payload->>'type') AS right_ones
                               FROM workspaces_delivery WHERE change_id = c.id) AS d
         WHERE {OF} AND (d.of_it <> d.right_ones OR CASE WHEN c.payload = '{{}}' THEN d.of_it > 0
                         ELSE d.of_it = 0 AND c.at > now() - {SENT_KEPT} END)
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "alert-answers",
        "who acknowledged or resolved an alert stands in the audit log, and in the alert",
        "alert",
        f"""
        SELECT NULL::bigint, format('alert %s: change %s (%s) by %s: %s', a.id, c.number, c.kind, c.actor_id, problem)
          FROM workspaces_alert AS a
          JOIN workspaces_alertchange AS c ON c.alert_id = a.id AND c.kind IN ('acknowledged', 'resolved')
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN c.via <> 'runtime' AND NOT EXISTS (
                          SELECT FROM workspaces_auditentry AS e
                           WHERE e.action = CASE c.kind WHEN 'resolved' THEN 'alert.resolve'
                                                   ELSE 'alert.acknowledge' END
                             AND e.actor_id = c.actor_id AND e.at = c.at AND (e.data->>'alert')::bigint = a.id)
                     THEN 'the audit log does not say so' END),
               (CASE WHEN c.kind = 'acknowledged' AND c.actor_id IS NULL THEN 'nobody did' END),
               (CASE WHEN a.state = 'acknowledged' AND c.number = (
                          SELECT max(number) FROM workspaces_alertchange
                           WHERE alert_id = a.id AND kind = 'acknowledged')
                      AND a.acknowledged_by_id IS DISTINCT FROM c.actor_id THEN 'the alert names another' END)
         ) AS found(problem)
         WHERE {OF} AND problem IS NOT NULL
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "alert-incidents",
        "what goes on in an alert goes on: of an incident that is resolved, its end is still to be digested",
        "alertmember",
        """
        SELECT m.task_id, format('in alert %s goes on incident %s, which is resolved', m.alert_id, i.id)
          FROM workspaces_alertmember AS m JOIN workspaces_incident AS i ON i.id = m.incident_id
         WHERE :task(m.task_id) AND m.ended_at IS NULL AND m.kind = 'incident' AND i.state = 'resolved'
           AND NOT EXISTS (SELECT FROM workspaces_alertsignal AS s
                            WHERE s.subject = m.subject AND s.digested_at IS NULL)
        """,
    ),
]
