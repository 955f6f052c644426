"""The sign-in form, and its page: a password is only looked at when the name and the address may try."""

from __future__ import annotations

import math
from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpResponse

from workspaces.actions.signin import signed_in, try_to_sign_in
from workspaces.domain.text import clean_text
from workspaces.queries.database import database_now


class SignInForm(AuthenticationForm):
    """`wait_until`: no try is taken before; None when this one was. `wait_s`: whole seconds until then."""

    wait_until: Any = None
    wait_s = 0

    @property
    def wait_words(self) -> str:
        return f"{self.wait_s} s" if self.wait_s < 120 else f"{math.ceil(self.wait_s / 60)} min"

    def clean(self) -> dict[str, Any]:
        name = clean_text(self.cleaned_data.get("username") or "")
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        if not name or not self.cleaned_data.get("password"):
            return super().clean()
        self.wait_until = try_to_sign_in(name, address)
        if self.wait_until is not None:
            self.wait_s = max(1, math.ceil((self.wait_until - database_now()).total_seconds()))
            raise ValidationError("Too many tries. Wait before the next one.", code="throttled")
        cleaned = super().clean()
        signed_in(name, address)
        return cleaned


class SignIn(LoginView):
    template_name = "registration/sign_in.html"
    authentication_form = SignInForm

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)
        if form.wait_until is not None:
            response.status_code = 429
            response["Retry-After"] = str(form.wait_s)
        return response
