"""Django's settings, all from the environment; unset, everything lies under AGENTDESK_HOME.

Never reads a file of secrets other than the two keys that this installation made for itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agentdesk import connections, environment
from agentdesk.environment import flag, networks, nodes, number, one_of, text, words

REPO = environment.REPO
AGENTDESK_HOME = environment.home()
AGENTDESK_RUN = environment.run_dir(AGENTDESK_HOME)
AGENTDESK_PORT = number("AGENTDESK_PORT", 8700, least=1)

DEBUG = flag("AGENTDESK_DEBUG")
HTTPS = flag("AGENTDESK_HTTPS")  # served to browsers over https, by a proxy in front

# An unwritable home is reported by a check (workspaces.E002), which must be able to run.
KEYS_PROBLEM = ""
try:
    SECRET_KEY = environment.secret_key(AGENTDESK_HOME)
    FIELD_ENCRYPTION_KEYS = environment.field_keys(AGENTDESK_HOME)
except OSError as error:
    KEYS_PROBLEM = str(error)
    SECRET_KEY = ""  # nothing can be signed: no page is served like this
    FIELD_ENCRYPTION_KEYS = []

ALLOWED_HOSTS = words("AGENTDESK_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = words("AGENTDESK_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "channels",
    "django_htmx",
    "workspaces.apps.WorkspacesConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "agentdesk.csp.ContentSecurityPolicy",
]

ROOT_URLCONF = "agentdesk.urls"
ASGI_APPLICATION = "agentdesk.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [REPO / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# --- Postgres

DATABASE_URL = text("DATABASE_URL", connections.embedded_database_url(AGENTDESK_RUN))
DATABASE: dict[str, Any] = connections.django_database(DATABASE_URL)
# One pool a process. A thread gives its connection back when its request, job or message is done.
DATABASE["OPTIONS"] = {
    # a server that is cut off without a word is noticed within half a minute (none of it matters on a socket)
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    **DATABASE["OPTIONS"],
    "application_name": "agentdesk",
    "prepare_threshold": 5,  # of the statements that are repeated (agentdesk/database)
    "options": " ".join(
        [
            f"-c statement_timeout={number('AGENTDESK_DB_STATEMENT_TIMEOUT_S', 60)}s",
            "-c lock_timeout=15s",
            "-c idle_in_transaction_session_timeout=60s",
        ]
    ),
    "pool": {
        "min_size": number("AGENTDESK_DB_POOL_MIN", 1),
        "max_size": number("AGENTDESK_DB_POOL_MAX", 20, least=1),
        "timeout": number("AGENTDESK_DB_POOL_TIMEOUT_S", 15, least=1),
        "reconnect_timeout": 5,  # then the next one who asks tries at once; else up to minutes after a long absence
    },
}
# Checked when handed out (0.1 ms): after a restart of Postgres every connection in the pool is dead, and each would
# cost one page or one step.
DATABASE |= {"CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True, "ATOMIC_REQUESTS": False}
DATABASES = {"default": DATABASE}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Valkey: the channel layer and the broker

VALKEY_URL = connections.client_url(text("VALKEY_URL", connections.embedded_valkey_url(AGENTDESK_RUN)))
VALKEY_PREFIX = text("AGENTDESK_VALKEY_PREFIX", "agentdesk")

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [VALKEY_URL], "prefix": f"{VALKEY_PREFIX}.live"},
    }
}

CELERY_BROKER_URL = connections.broker_url(VALKEY_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # the broker may be away for as long as it likes
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{VALKEY_PREFIX}.jobs.",
    "socket_connect_timeout": 5,
    "health_check_interval": 30,
}
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_DEFAULT_QUEUE = "jobs"
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_ENABLE_UTC = True
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = WORKER_CONCURRENCY = number("AGENTDESK_WORKER_CONCURRENCY", 64, least=1)
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False  # threads cannot be cancelled

# --- Users

AUTH_USER_MODEL = "workspaces.User"
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = LOGIN_URL
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# --- Security: plain http is for localhost; behind https, everything is strict

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
# Cookies of one host are shared by all its ports: two installations must not sign each other out.
SESSION_COOKIE_NAME = text("AGENTDESK_SESSION_COOKIE", f"agentdesk_{AGENTDESK_PORT}")
CSRF_COOKIE_NAME = f"{SESSION_COOKIE_NAME}_csrf"
SESSION_COOKIE_AGE = int(timedelta(days=14).total_seconds())
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]  # asked from inside, without the proxy
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_HSTS_SECONDS = int(timedelta(days=365).total_seconds()) if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "workspaces.web.errors.csrf_failure"

# --- E-mail: what alerts and questions are sent by; without a host there is none

EMAIL_HOST = text("AGENTDESK_EMAIL_HOST")
EMAIL_SECURITY = one_of("AGENTDESK_EMAIL_SECURITY", ("starttls", "tls", "none"))
EMAIL_USE_TLS, EMAIL_USE_SSL = EMAIL_SECURITY == "starttls", EMAIL_SECURITY == "tls"
EMAIL_PORT = number("AGENTDESK_EMAIL_PORT", {"starttls": 587, "tls": 465, "none": 25}[EMAIL_SECURITY], least=1)
EMAIL_HOST_USER = text("AGENTDESK_EMAIL_USER")
EMAIL_HOST_PASSWORD = text("AGENTDESK_EMAIL_PASSWORD")
EMAIL_FROM = text("AGENTDESK_EMAIL_FROM")
DEFAULT_FROM_EMAIL = EMAIL_FROM or "agentdesk@localhost"
EMAIL_TIMEOUT = 20  # seconds for each answer of the mail server

# --- Static files

STATIC_URL = "/static/"
STATIC_ROOT = AGENTDESK_HOME / "static"
STATICFILES_DIRS = [REPO / "static"] if (REPO / "static").is_dir() else []
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "agentdesk.packaged.PlotlyFinder",
]
# From source: as they lie in the repo, without collecting them (development and tests).
STATIC_FROM_SOURCE = flag("AGENTDESK_STATIC_FROM_SOURCE", DEBUG)
WHITENOISE_AUTOREFRESH = WHITENOISE_USE_FINDERS = STATIC_FROM_SOURCE
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if STATIC_FROM_SOURCE
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
MEDIA_ROOT = AGENTDESK_HOME / "uploads"

# --- Language and time

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

# --- Log

LOG_LEVEL = text("AGENTDESK_LOG_LEVEL", "INFO").upper()
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "agentdesk.scrub.ScrubbingFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(threadName)s %(message)s",
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        "django.server": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        "django.channels.server": {"level": "WARNING"},
        "uvicorn.access": {"level": text("AGENTDESK_ACCESS_LOG_LEVEL", "WARNING").upper()},
        "httpx2": {"level": "WARNING"},
        "urllib3": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},  # one line a job is too many
    },
}

# --- The product

SANDBOX_DRIVER = one_of("AGENTDESK_SANDBOX_DRIVER", ("auto", "docker", "local"))
SANDBOX_IMAGE = text("AGENTDESK_SANDBOX_IMAGE")  # empty: built from compose/sandbox
SANDBOX_STORE = one_of("AGENTDESK_SANDBOX_STORE", ("auto", "btrfs", "content"))
SANDBOX_ROOT = AGENTDESK_HOME / "sandboxes"
SANDBOX_RUNTIME = one_of("AGENTDESK_SANDBOX_RUNTIME", ("runc", "runsc", "kata"))  # the least that a workspace has
SANDBOX_NETWORK = one_of("AGENTDESK_SANDBOX_NETWORK", ("allowlist", "none", "open"))  # the most that a workspace has
SANDBOX_REACHABLE = networks("AGENTDESK_SANDBOX_REACHABLE")  # private networks that an allow-list may lead to
HTTP_PRIVATE = networks("AGENTDESK_HTTP_PRIVATE")  # private networks that http_request and MCP may be sent to
WEBHOOK_PRIVATE = networks("AGENTDESK_WEBHOOK_PRIVATE")  # private networks that alerts may be sent to
PUBLIC_URL = text("AGENTDESK_PUBLIC_URL", f"http://localhost:{AGENTDESK_PORT}").rstrip(
    "/"
)  # as people's browsers have it
NODES = nodes("AGENTDESK_NODES")  # Docker engines: name → address; the first is where a workspace without a node is
NODES_TLS = text("AGENTDESK_NODES_TLS")  # a folder a node: NAME/ca.pem, cert.pem, key.pem
NODE_LOST_S = number("AGENTDESK_NODE_LOST_S", 60, least=5)
LEASE_S = number("AGENTDESK_LEASE_S", 15, least=3)
IDLE_TIMEOUT_S = number("AGENTDESK_IDLE_TIMEOUT_S", 300)  # 0: no workspace sleeps unless it says otherwise itself
WAKES_AT_ONCE = number("AGENTDESK_WAKES_AT_ONCE", 4, least=1)
DRAIN_S = number("AGENTDESK_DRAIN_S", 30)  # what a worker that is told to end gives to what it runs

UPLOAD_MAX_BYTES = number("AGENTDESK_UPLOAD_MAX_MB", 100, least=1) * 1024 * 1024
UPLOAD_MAX_EXPANDED_BYTES = number("AGENTDESK_UPLOAD_MAX_EXPANDED_MB", 1024, least=1) * 1024 * 1024
UPLOAD_MAX_FILES = number("AGENTDESK_UPLOAD_MAX_FILES", 20_000, least=1)
UPLOAD_MAX_RATIO = number("AGENTDESK_UPLOAD_MAX_RATIO", 200, least=1)  # expanded bytes to packed bytes
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024  # a form without its files
FILE_UPLOAD_TEMP_DIR = None

GIT_ALLOWED_SCHEMES = tuple(words("AGENTDESK_GIT_SCHEMES", "https"))
GIT_ALLOWED_HOSTS = tuple(words("AGENTDESK_GIT_HOSTS"))  # empty: any public host
GIT_CLONE_TIMEOUT_S = number("AGENTDESK_GIT_TIMEOUT_S", 120, least=1)
