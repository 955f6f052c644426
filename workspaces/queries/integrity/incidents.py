"""Rules of incidents: each stands in the trace with all that was done about it, and points at what is there."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "incidents",
        "an incident's row tells what its events tell: opened once, its growth, each response and measure, its end",
        "incident",
        """
        SELECT i.task_id, format('incident %s (%s, %s, %s responses): %s opened, %s responses, %s resolved', i.id,
                                 i.kind, i.state, jsonb_array_length(i.responses), coalesce(e.opened, 0),
                                 coalesce(e.responses, 0), coalesce(e.resolved, 0))
          FROM workspaces_incident i
          LEFT JOIN (SELECT (data->>'incident')::bigint AS id,
                            count(*) FILTER (WHERE kind = 'incident.opened') AS opened,
                            max(at) FILTER (WHERE kind IN ('incident.opened', 'incident.grew')) AS grew_at,
                            count(*) FILTER (WHERE kind = 'incident.measured') AS measured,
                            count(*) FILTER (WHERE kind = 'incident.responded') AS responses,
                            count(*) FILTER (WHERE kind = 'incident.responded'
                                                   AND data->>'rung' = 'nudged') AS nudges,
                            count(*) FILTER (WHERE kind = 'incident.acknowledged') AS acknowledged,
                            count(*) FILTER (WHERE kind = 'incident.resolved') AS resolved
                       FROM workspaces_event
                      WHERE :task(task_id) AND kind LIKE 'incident.%' GROUP BY 1) e ON e.id = i.id
         WHERE :task(i.task_id) AND (coalesce(e.opened, 0) <> 1
               OR e.grew_at <> i.grew_at
               OR coalesce(e.measured, 0) <> (SELECT count(*) FROM jsonb_array_elements(i.responses) AS a
                                               WHERE a ? 'measured_seq')
               OR coalesce(e.responses, 0) <> jsonb_array_length(i.responses)
               OR coalesce(e.nudges, 0) <> i.nudges
               OR coalesce(e.acknowledged, 0) <> CASE WHEN i.acknowledged_at IS NULL THEN 0 ELSE 1 END
               OR coalesce(e.resolved, 0) <> CASE WHEN i.state = 'resolved' THEN 1 ELSE 0 END)
        """,
    ),
    Rule(
        "incident-evidence",
        "the evidence of an incident is in the trace of its task or of what it was forked from",
        "incident",
        """
        SELECT i.task_id, format('incident %s (%s): %s', i.id, i.kind, problem)
          FROM workspaces_incident i
          JOIN workspaces_task t ON t.id = i.task_id
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN i.first_seq > i.last_seq THEN 'it ends before it begins' END),
               (CASE WHEN i.last_seq > t.last_seq THEN 'it ends after the trace' END),
               (CASE WHEN jsonb_array_length(i.evidence) = 0 THEN 'it has no evidence' END),
               (CASE WHEN t.forked_from_id IS NULL AND EXISTS (
                          SELECT 1 FROM jsonb_array_elements(i.evidence) AS p
                           WHERE (p->>'seq')::bigint NOT BETWEEN 1 AND t.last_seq)
                     THEN 'its evidence is not in the trace' END)
         ) AS found(problem)
         WHERE :task(i.task_id) AND problem IS NOT NULL
        """,
    ),
    Rule(
        "learned-windows",
        "a smaller window was learned from a truncation, at a reply, for the profile version of its task",
        "incident",
        """
        SELECT i.task_id, format('a window of %s tokens was learned at %s from a %s', w.tokens, w.seq, i.kind)
          FROM workspaces_learnedwindow w
          JOIN workspaces_incident i ON i.id = w.incident_id
          JOIN workspaces_task t ON t.id = i.task_id
         WHERE :task(i.task_id) AND (i.kind <> 'truncation' OR t.profile_version_id <> w.profile_version_id
               OR NOT EXISTS (SELECT 1 FROM workspaces_event e WHERE e.task_id = i.task_id AND e.seq = w.seq
                                 AND e.kind = 'model.replied'))
        UNION ALL
        SELECT m.task_id, format('the prompt of model call %s is called cut, and no incident says so', m.id)
          FROM workspaces_modelcall m
         WHERE :task(m.task_id) AND m.prompt_truncated AND NOT EXISTS (
               SELECT 1 FROM workspaces_incident i WHERE i.task_id = m.task_id AND i.pattern = 'prompt_truncated')
        """,
    ),
]
