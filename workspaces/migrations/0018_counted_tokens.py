import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0017_incident_attention'),
    ]

    operations = [
        migrations.CreateModel(
            name='LearnedWindow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(max_length=200)),
                ('tokens', models.PositiveIntegerField()),
                ('seq', models.BigIntegerField()),
                ('learned_at', models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name='modelcall',
            name='endpoint',
            field=models.CharField(blank=True, db_default='', default='', max_length=200),
        ),
        migrations.AddField(
            model_name='modelcall',
            name='estimated_tokens',
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='modelcall',
            name='prompt_truncated',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddIndex(
            model_name='modelcall',
            index=models.Index(condition=models.Q(('estimated_tokens__isnull', False), ('prompt_truncated', False), ('status', 'replied')), fields=['endpoint', 'model', '-id'], name='model_call_counted'),
        ),
        migrations.AddField(
            model_name='learnedwindow',
            name='incident',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='learned_windows', to='workspaces.incident'),
        ),
        migrations.AddField(
            model_name='learnedwindow',
            name='profile_version',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='learned_windows', to='workspaces.profileversion'),
        ),
        migrations.AddIndex(
            model_name='learnedwindow',
            index=models.Index(fields=['profile_version', 'model'], name='learned_window_of'),
        ),
        migrations.AddConstraint(
            model_name='learnedwindow',
            constraint=models.UniqueConstraint(fields=('incident', 'tokens'), name='learned_window_once'),
        ),
    ]
