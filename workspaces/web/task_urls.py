"""Addresses below `tasks/<task_id>/`. Checkpoints are named by their seq, as the trace names them."""

from __future__ import annotations

from django.urls import path

from .views import approvals, audit, checkpoints, contexts, files, limits, scratchpad, tasks, traces

urlpatterns = [
    path("", tasks.show, name="task"),
    path("header/", tasks.header, name="task-header"),
    path("panels/<slug:panel>/", tasks.panel, name="task-panel"),
    path("usage.json", tasks.usage, name="task-usage"),
    path("pause/", tasks.pause, name="task-pause"),
    path("resume/", tasks.resume, name="task-resume"),
    path("cancel/", tasks.cancel, name="task-cancel"),
    path("limits/", limits.change, name="task-limits"),
    path("message/", tasks.message, name="task-message"),
    path("note/", scratchpad.note, name="task-note"),
    path("notes/", scratchpad.versions, name="task-note-versions"),
    path("notes/restore/", scratchpad.restore, name="task-note-restore"),
    path("trace/", traces.index, name="task-trace"),
    path("calls/<int:call_id>/", traces.call, name="task-call"),
    path("replies/<int:reply_id>/", traces.reply, name="task-reply"),
    path("steps/<int:number>/context/", contexts.show, name="task-context"),
    path("steps/<int:number>/context/parts/<int:place>/", contexts.part, name="task-context-part"),
    path("compactions/<int:seq>/", contexts.receipt, name="task-receipt"),
    path("context-diff/", contexts.compare, name="task-context-diff"),
    path("approvals/<int:standing_id>/revoke/", approvals.revoke, name="task-revoke-approval"),
    path("rollback/", checkpoints.choose, name="task-rollback-choose"),
    path("checkpoints/<int:seq>/rollback/", checkpoints.rollback, name="task-rollback"),
    path("checkpoints/<int:seq>/fork/", checkpoints.fork, name="task-fork"),
    path("audit/", audit.task, name="task-audit"),
    path("diff/", files.diff, name="task-diff"),
    path("diff/file/", files.diff_file, name="task-diff-file"),
    path("files/", files.view, name="task-file"),
    path("files/download/", files.download, name="task-file-download"),
]
