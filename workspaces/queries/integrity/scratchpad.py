"""Rules of the scratchpad: it is what its newest versions say, and every version was brought by an event."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "scratchpad",
        "a task's scratchpad is the newest version of each section on its line of history",
        "scratchpadedit",
        """
        WITH RECURSIVE line(task_id, branch_id, cut, depth) AS (
               SELECT t.id, t.branch_id, NULL::bigint, 0 FROM workspaces_task t WHERE :task(t.id)
               UNION ALL
               SELECT l.task_id, b.parent_id, b.parent_seq, l.depth + 1
                 FROM line l JOIN workspaces_branch b ON b.id = l.branch_id WHERE b.parent_id IS NOT NULL),
             newest AS (
               SELECT DISTINCT ON (l.task_id, e.section) l.task_id, e.section, e.text
                 FROM line l JOIN workspaces_scratchpadedit e ON e.branch_id = l.branch_id
                      AND (l.cut IS NULL OR e.seq <= l.cut)
                ORDER BY l.task_id, e.section, l.depth, e.seq DESC),
             pads AS (
               SELECT task_id, jsonb_object_agg(section, text) FILTER (WHERE text <> '') AS pad
                 FROM newest GROUP BY task_id)
        SELECT t.id, format('its scratchpad has the sections %s, its versions say %s', coalesce(
                            (SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(t.scratchpad) k), 'none'),
                            coalesce((SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(p.pad) k), 'none'))
          FROM workspaces_task t LEFT JOIN pads p ON p.task_id = t.id
         WHERE :task(t.id) AND t.scratchpad <> coalesce(p.pad, '{}'::jsonb)
        """,
    ),
    Rule(
        "notes",
        "every version of a section was brought by its event, with the same author and text",
        "scratchpadedit",
        """
        SELECT s.task_id, format('the version of %s at %s has no such event', s.section, s.seq)
          FROM workspaces_scratchpadedit s
          JOIN workspaces_branch b ON b.id = s.branch_id
          LEFT JOIN workspaces_event e ON e.task_id = s.task_id AND e.seq = s.seq AND e.kind = 'note.written'
               AND e.branch_number = b.number AND b.task_id = s.task_id AND e.data->>'section' = s.section
               AND e.data->>'by' = s.by AND e.actor_id IS NOT DISTINCT FROM s.actor_id
               AND left(e.data->>'text', 1000) = left(s.text, 1000)
         WHERE :task(s.task_id) AND e.id IS NULL
        UNION ALL
        SELECT e.task_id, format('event %s tells of a note that is in no version', e.seq)
          FROM workspaces_event e
          LEFT JOIN workspaces_scratchpadedit s ON s.task_id = e.task_id AND s.seq = e.seq
         WHERE :task(e.task_id) AND e.kind = 'note.written' AND s.id IS NULL
        """,
    ),
]
