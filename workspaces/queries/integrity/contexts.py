"""Rules of contexts: what is sent in other messages' places stands in the trace, and each request can be made again."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "compactions",
        "a receipt and its rows tell the same",
        "event",
        """
        SELECT e.task_id, format('the compaction at %s tells of %s messages and %s summaries, there are %s and %s',
               e.seq, told.replaced, told.summaries, coalesce(r.n, 0), coalesce(s.n, 0))
          FROM workspaces_event e
         CROSS JOIN LATERAL (SELECT
               jsonb_array_length(e.data->'offloaded') + jsonb_array_length(e.data->'clipped') AS replaced,
               CASE WHEN jsonb_typeof(e.data->'summarised') = 'object' THEN 1 ELSE 0 END AS summaries) AS told
          LEFT JOIN LATERAL (SELECT count(*) AS n FROM workspaces_replacement x
                              WHERE x.task_id = e.task_id AND x.seq = e.seq) r ON TRUE
          LEFT JOIN LATERAL (SELECT count(*) AS n FROM workspaces_summary x
                              WHERE x.task_id = e.task_id AND x.seq = e.seq
                                AND x.model_call_id::text = e.data->'summarised'->>'model_call') s ON TRUE
         WHERE :task(e.task_id) AND e.kind = 'context.compacted'
           AND (told.replaced, told.summaries) <> (r.n, s.n)
        """,
    ),
    Rule(
        "replacements",
        "what is sent in a message's place is shorter, is of the same line, and never stands for a pinned one",
        "replacement",
        """
        SELECT r.task_id, format('replacement %s of message %s: %s', r.id, r.message_id, problem)
          FROM workspaces_replacement r
          JOIN workspaces_message m ON m.id = r.message_id
          JOIN workspaces_branch b ON b.id = r.branch_id
          LEFT JOIN workspaces_event e ON e.task_id = r.task_id AND e.seq = r.seq AND e.branch_number = b.number
               AND e.kind = 'context.compacted'
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN e.id IS NULL OR b.task_id <> r.task_id THEN 'it has no receipt' END),
               (CASE WHEN m.pinned THEN 'the message is pinned' END),
               (CASE WHEN r.tokens >= m.tokens THEN 'it is no shorter' END),
               (CASE WHEN m.task_id = r.task_id AND m.seq > r.seq THEN 'the message came later' END)
         ) AS found(problem)
         WHERE :task(r.task_id) AND problem IS NOT NULL
        """,
    ),
    Rule(
        "summaries",
        "a summary is the reply to a recorded call, has a receipt, and is shorter than what it stands for",
        "summary",
        """
        SELECT s.task_id, format('summary %s: %s', s.id, problem)
          FROM workspaces_summary s
          JOIN workspaces_branch b ON b.id = s.branch_id
          JOIN workspaces_modelcall m ON m.id = s.model_call_id
          LEFT JOIN workspaces_event e ON e.task_id = s.task_id AND e.seq = s.seq AND e.branch_number = b.number
               AND e.kind = 'context.compacted'
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN e.id IS NULL OR b.task_id <> s.task_id THEN 'it has no receipt' END),
               (CASE WHEN m.task_id <> s.task_id OR m.purpose <> 'summary' OR m.status <> 'replied'
                     THEN 'its call is none of a summary' END),
               (CASE WHEN s.tokens_after >= s.tokens_before THEN 'it is no shorter' END),
               (CASE WHEN s.first_message_id > s.last_message_id OR s.messages < 1 OR s.replies < 0
                     THEN 'it stands for nothing' END),
               (CASE WHEN strpos(s.text, btrim(m.text, E' \\n\\t\\r')) <> 1
                     THEN 'it is not what the model said' END)
         ) AS found(problem)
         WHERE :task(s.task_id) AND problem IS NOT NULL
        """,
    ),
    Rule(
        "manifests",
        "a manifest names a seq of its trace, and the rules and tools that it was framed with are kept",
        "step",
        """
        SELECT s.task_id, format('step %s: %s', s.number, problem)
          FROM workspaces_step s
          JOIN workspaces_task t ON t.id = s.task_id
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN (s.manifest->>'as_of_seq')::bigint > t.last_seq THEN 'its request is from the future' END),
               (CASE WHEN NOT EXISTS (SELECT 1 FROM workspaces_contextframe f WHERE f.hash = s.manifest->>'frame')
                     THEN 'the frame of its request is gone' END)
         ) AS found(problem)
         WHERE :task(s.task_id) AND s.manifest ? 'as_of_seq' AND problem IS NOT NULL
        """,
    ),
]
