"""The addresses below /alerts/ at which rules, endpoints and deliveries are kept."""

from __future__ import annotations

from django.urls import path

from .views import alert_rules, deliveries, endpoints

urlpatterns = [
    path("rules/", alert_rules.index, name="alert-rules"),
    path("rules/new/", alert_rules.new, name="alert-rule-new"),
    path("rules/preview/", alert_rules.preview, name="alert-rule-preview"),
    path("rules/<int:rule_id>/", alert_rules.change, name="alert-rule"),
    path("rules/<int:rule_id>/mute/", alert_rules.mute, name="alert-rule-mute"),
    path("rules/<int:rule_id>/unmute/", alert_rules.unmute, name="alert-rule-unmute"),
    path("rules/<int:rule_id>/switch/", alert_rules.switch, name="alert-rule-switch"),
    path("rules/<int:rule_id>/defaults/", alert_rules.defaults, name="alert-rule-defaults"),
    path("rules/<int:rule_id>/remove/", alert_rules.remove, name="alert-rule-remove"),
    path("endpoints/", endpoints.index, name="alert-endpoints"),
    path("endpoints/new/", endpoints.new, name="alert-endpoint-new"),
    path("endpoints/<int:endpoint_id>/", endpoints.show, name="alert-endpoint"),
    path("endpoints/<int:endpoint_id>/change/", endpoints.change, name="alert-endpoint-change"),
    path("endpoints/<int:endpoint_id>/rotate/", endpoints.rotate, name="alert-endpoint-rotate"),
    path("endpoints/<int:endpoint_id>/drop-secret/", endpoints.drop_old_secret, name="alert-endpoint-drop-secret"),
    path("endpoints/<int:endpoint_id>/test/", endpoints.test, name="alert-endpoint-test"),
    path("endpoints/<int:endpoint_id>/test/result/", endpoints.test_result, name="alert-endpoint-test-result"),
    path("endpoints/<int:endpoint_id>/confirm/", endpoints.confirm_again, name="alert-endpoint-confirm"),
    path("endpoints/<int:endpoint_id>/enable/", endpoints.enable, name="alert-endpoint-enable"),
    path("endpoints/<int:endpoint_id>/disable/", endpoints.disable, name="alert-endpoint-disable"),
    path("endpoints/<int:endpoint_id>/remove/", endpoints.remove, name="alert-endpoint-remove"),
    path("endpoints/<int:endpoint_id>/deliveries/", deliveries.of_endpoint, name="alert-endpoint-deliveries"),
    path(
        "endpoints/<int:endpoint_id>/deliveries/resend-failed/",
        deliveries.resend_failed,
        name="alert-endpoint-resend-failed",
    ),
    path("<int:alert_id>/deliveries/", deliveries.of_alert, name="alert-deliveries"),
    path("deliveries/<int:delivery_id>/", deliveries.show, name="alert-delivery"),
    path("deliveries/<int:delivery_id>/resend/", deliveries.resend, name="alert-delivery-resend"),
]
