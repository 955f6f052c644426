"""The list of what is over, and the time that people take, are each read by an index."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0038_incident_pool'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(condition=models.Q(('state', 'resolved')), fields=['-resolved_at', '-id'], name='alert_resolved_lately'),
        ),
        migrations.AddIndex(
            model_name='alertchange',
            index=models.Index(condition=models.Q(('actor__isnull', False), ('kind__in', ['acknowledged', 'resolved'])), fields=['-at'], name='alert_change_by_people'),
        ),
    ]
