"""Rules of what is sent: in order, with an end that its tries bear out. What is to be sent at all: alerts.py."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "delivery-tries",
        "the tries of a message are numbered 1, 2, 3 … and counted in it",
        "deliveryattempt",
        """
        SELECT NULL::bigint, format('delivery %s counts %s tries, there are %s, numbered up to %s', d.id,
                                    d.attempts_made, t.tries, t.last)
          FROM workspaces_delivery AS d
         CROSS JOIN LATERAL (SELECT count(*) AS tries, coalesce(max(number), 0) AS last
                               FROM workspaces_deliveryattempt WHERE delivery_id = d.id) AS t
         WHERE :task(0) AND (d.attempts_made <> t.tries OR d.attempts_made <> t.last)
        """,
    ),
    Rule(
        "delivery-ends",
        "a message that was delivered was taken in one of its tries, one that was given up says why; one that is "
        "pending has no end",
        "delivery",
        """
        SELECT NULL::bigint, format('delivery %s is %s since %s, %s of its tries were taken: %s', d.id, d.state,
                                    coalesce(d.finished_at::text, 'never'), t.taken, d.error)
          FROM workspaces_delivery AS d
         CROSS JOIN LATERAL (SELECT count(*) AS taken FROM workspaces_deliveryattempt
                              WHERE delivery_id = d.id AND outcome = 'delivered' AND status BETWEEN 200 AND 299) AS t
         WHERE :task(0) AND ((d.state = 'pending') <> (d.finished_at IS NULL) OR d.state = 'delivered' AND t.taken = 0
                             OR d.state IN ('failed', 'cancelled') AND d.error = '')
        """,
    ),
    Rule(
        "delivery-order",
        "of an alert nothing was sent to an endpoint while an earlier message was not delivered or given up",
        "deliveryattempt",
        """
        SELECT NULL::bigint, format('delivery %s (change %s of alert %s) was tried at %s, and delivery %s (change %s) '
                                    'came to its end at %s', later.id, later.number, later.alert_id, t.begun_at,
                                    earlier.id, earlier.number, coalesce(earlier.finished_at::text, 'no time yet'))
          FROM workspaces_delivery AS later
          JOIN workspaces_delivery AS earlier ON earlier.alert_id = later.alert_id
               AND earlier.endpoint_id = later.endpoint_id AND earlier.number < later.number
          JOIN workspaces_deliveryattempt AS t ON t.delivery_id = later.id
         WHERE :task(0) AND earlier.resent = 0 AND later.resent = 0
           AND t.begun_at < coalesce(earlier.finished_at, 'infinity')
        """,
    ),
    Rule(
        "delivery-words",
        "what is sent says what its change says, but for its links",
        "delivery",
        """
        SELECT NULL::bigint, format('delivery %s says something else than change %s of alert %s', d.id, c.number,
                                    c.alert_id)
          FROM workspaces_delivery AS d JOIN workspaces_alertchange AS c ON c.id = d.change_id
         WHERE :task(0) AND (d.type <> d.body->>'type'
                             OR d.body #- '{data,links}' IS DISTINCT FROM c.payload #- '{data,links}')
        """,
    ),
    Rule(
        "delivery-endpoints",
        "nothing of an alert waits for an endpoint that is removed, or was switched off because it failed",
        "endpoint",
        """
        SELECT NULL::bigint, format('%s messages wait for endpoint %s, which is %s', count(*), e.id, e.state)
          FROM workspaces_endpoint AS e JOIN workspaces_delivery AS d ON d.endpoint_id = e.id
         WHERE :task(0) AND d.state = 'pending' AND d.alert_id IS NOT NULL AND e.state IN ('failed', 'removed')
         GROUP BY e.id
        """,
    ),
]
