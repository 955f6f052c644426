"""Usage records of before say whose profile and model they are of and what for, and get their sums."""

from __future__ import annotations

from django.db import migrations

FILL = """
ALTER TABLE workspaces_usagerecord DISABLE TRIGGER workspaces_usagerecord_append_only;
UPDATE workspaces_usagerecord AS record
   SET profile_id = version.profile_id, model = call.model,
       purpose = CASE WHEN call.purpose = 'step' AND call.attempt > 1 THEN 'retry' ELSE call.purpose END
  FROM workspaces_modelcall AS call
  JOIN workspaces_task AS task ON task.id = call.task_id
  JOIN workspaces_profileversion AS version ON version.id = task.profile_version_id
 WHERE call.id = record.model_call_id;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE workspaces_usagerecord ENABLE TRIGGER workspaces_usagerecord_append_only;
INSERT INTO workspaces_usagerollup (hour, user_id, workspace_id, task_id, profile_id, model, purpose, unit, records,
                                    quantity, cost_usd, unpriced, unpriced_quantity)
SELECT date_trunc('hour', created_at, 'UTC'), user_id, workspace_id, task_id, profile_id, model, purpose, unit,
       count(*), sum(quantity), coalesce(sum(cost_usd), 0), count(*) FILTER (WHERE cost_usd IS NULL),
       coalesce(sum(quantity) FILTER (WHERE cost_usd IS NULL), 0)
  FROM workspaces_usagerecord GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
SET CONSTRAINTS ALL IMMEDIATE;
"""


class Migration(migrations.Migration):
    dependencies = [("workspaces", "0025_calls_of_a_pool")]

    operations = [migrations.RunSQL(FILL, "DELETE FROM workspaces_usagerollup")]
