"""Rules of the trace and the conversation: nothing is missing, nothing was changed, each result stands once."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "append-only",
        "the database itself refuses to change what happened",
        "event",
        """
        SELECT NULL::bigint, format('the trigger that protects %s is off or gone', wanted.name)
          FROM (VALUES ('workspaces_event', 'append_only'), ('workspaces_message', 'append_only'),
                       ('workspaces_usagerecord', 'append_only'), ('workspaces_auditentry', 'append_only'),
                       ('workspaces_scratchpadedit', 'append_only'),
                       ('workspaces_replacement', 'append_only'), ('workspaces_summary', 'append_only'),
                       ('workspaces_contextframe', 'append_only'),
                       ('workspaces_profileversion', 'append_only')) AS wanted(name, suffix)
          LEFT JOIN pg_trigger t ON t.tgrelid = wanted.name::regclass
               AND t.tgname = wanted.name || '_' || wanted.suffix AND t.tgenabled IN ('O', 'A')
         WHERE t.oid IS NULL
        """,
    ),
    Rule(
        "seq",
        "the events of a task count 1, 2, 3 … to its tip, without a gap",
        "event",
        """
        SELECT t.id, format('%s events, from %s to %s; the task says %s', coalesce(e.n, 0), e.lo, e.hi, t.last_seq)
          FROM workspaces_task t
          LEFT JOIN (SELECT task_id, count(*) AS n, min(seq) AS lo, max(seq) AS hi
                       FROM workspaces_event WHERE :task(task_id) GROUP BY task_id) e ON e.task_id = t.id
         WHERE :task(t.id) AND (t.last_seq < 1 OR (coalesce(e.n, 0), coalesce(e.lo, 0), coalesce(e.hi, 0))
               <> (t.last_seq, 1, t.last_seq))
        """,
    ),
    Rule(
        "tip",
        "a task's tip is the hash of its newest event",
        "task",
        """
        SELECT t.id, format('the newest event (%s) has another hash than the tip', e.seq)
          FROM workspaces_task t JOIN workspaces_event e ON e.task_id = t.id AND e.seq = t.last_seq
         WHERE :task(t.id) AND e.hash <> t.last_hash
        """,
    ),
    Rule(
        "event-branch",
        "every event lies on a branch of its task",
        "event",
        """
        SELECT e.task_id, format('event %s lies on branch %s, which is none of its task', e.seq, e.branch_number)
          FROM workspaces_event e
         WHERE :task(e.task_id) AND NOT EXISTS (
               SELECT 1 FROM workspaces_branch b WHERE b.task_id = e.task_id AND b.number = e.branch_number)
        """,
    ),
    Rule(
        "status",
        "a task's status is the one that its trace tells",
        "task",
        """
        SELECT t.id, format('it is %s, the trace last says %s', t.status, coalesce(e.kind, 'nothing'))
          FROM workspaces_task t
          LEFT JOIN LATERAL (
               SELECT kind FROM workspaces_event
                WHERE task_id = t.id AND kind IN ('task.created', 'task.started', 'task.queued', 'task.waiting',
                      'task.pausing', 'task.paused', 'task.resumed', 'task.succeeded', 'task.failed',
                      'task.cancelled', 'task.rolled_back')
                ORDER BY seq DESC LIMIT 1) e ON TRUE
         WHERE :task(t.id) AND t.status IS DISTINCT FROM CASE e.kind
               WHEN 'task.created' THEN 'queued' WHEN 'task.queued' THEN 'queued' WHEN 'task.resumed' THEN 'queued'
               WHEN 'task.started' THEN 'running' WHEN 'task.waiting' THEN 'waiting'
               WHEN 'task.pausing' THEN 'pausing' WHEN 'task.paused' THEN 'paused'
               WHEN 'task.rolled_back' THEN 'paused' WHEN 'task.succeeded' THEN 'succeeded'
               WHEN 'task.failed' THEN 'failed' WHEN 'task.cancelled' THEN 'cancelled' END
        """,
    ),
    Rule(
        "messages",
        "every message was brought by an event on its branch",
        "message",
        """
        SELECT m.task_id, format('the %s message at %s has no such event', m.role, m.seq)
          FROM workspaces_message m
          JOIN workspaces_branch b ON b.id = m.branch_id
          LEFT JOIN workspaces_event e ON e.task_id = m.task_id AND e.seq = m.seq
         WHERE :task(m.task_id)
           AND (e.id IS NULL OR e.branch_number <> b.number OR b.task_id <> m.task_id)
        """,
    ),
    Rule(
        "conversation",
        "every reply, result and word of an operator stands in the conversation, once",
        "event",
        """
        SELECT e.task_id, format('event %s (%s) has %s messages', e.seq, e.kind, count(m.id))
          FROM workspaces_event e
          LEFT JOIN workspaces_message m ON m.task_id = e.task_id AND m.seq = e.seq
               AND m.role = CASE e.kind WHEN 'model.replied' THEN 'assistant' WHEN 'call.finished' THEN 'tool'
                                        ELSE 'user' END
         WHERE :task(e.task_id)
           AND (e.kind = 'call.finished' OR e.kind = 'model.replied' AND NOT e.data ? 'purpose'
                OR e.kind = 'message.added' AND e.data->>'role' = 'operator'
                OR e.kind = 'task.created' AND NOT e.data ? 'fork_of')
         GROUP BY e.id HAVING count(m.id) <> 1
        """,
    ),
    Rule(
        "results",
        "a finished call has one result: its row, its event and its message agree",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s) is done, its result does not stand at event %s', c.id, c.name, c.seq)
          FROM workspaces_toolcall c
          LEFT JOIN workspaces_event e ON e.task_id = c.task_id AND e.seq = c.seq AND e.kind = 'call.finished'
               AND e.data->>'tool_call' = c.id::text
          LEFT JOIN workspaces_message m ON m.task_id = c.task_id AND m.seq = c.seq AND m.role = 'tool'
               AND m.call_id = c.call_id AND m.content = c.result
         WHERE :task(c.task_id) AND c.status = 'done'
           AND (e.id IS NULL OR m.id IS NULL OR c.result_class = '' OR c.finished_at IS NULL)
        UNION ALL
        SELECT e.task_id, format('event %s brings a result of call %s, which has another or none',
                                 e.seq, e.data->>'tool_call')
          FROM workspaces_event e
          LEFT JOIN workspaces_toolcall c ON c.id = (e.data->>'tool_call')::bigint
         WHERE :task(e.task_id) AND e.kind = 'call.finished'
           AND (c.id IS NULL OR c.seq IS DISTINCT FROM e.seq OR c.task_id <> e.task_id OR c.status <> 'done')
        """,
    ),
]
