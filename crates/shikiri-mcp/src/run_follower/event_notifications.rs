//! Events of a run as messages of the protocol: one event, at most one message.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use shikiri_model::connection::LogLevel;
use shikiri_model::event::EventRef;
use shikiri_model::ids::RunId;

use crate::message;

#[derive(Deserialize)]
struct ProgressEventData<'a> {
    #[serde(borrow)]
    progress: &'a RawValue,
    #[serde(borrow)]
    total: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct LogEventData {
    level: LogLevel,
    logger: Option<String>,
    message: Value,
}

/// Which notifications a caller wants.
pub(super) struct NotificationFilter {
    /// The progress token as JSON.
    pub(super) token: Option<String>,
    pub(super) log_level: Option<LogLevel>,
}

impl NotificationFilter {
    /// The notification for an event, if it makes one that the caller wants.
    pub(super) fn notification(&self, run: &RunId, event: EventRef<'_>) -> Option<String> {
        match event.kind {
            "progress" => {
                let progress: ProgressEventData<'_> = serde_json::from_str(event.data).ok()?;
                let (total, message) = (progress.total.map(RawValue::get), progress.message);
                self.progress(progress.progress.get(), total, message.map(RawValue::get))
            }
            "log" => {
                let log: LogEventData = serde_json::from_str(event.data).ok()?;
                self.log(log.level, log.logger.as_deref(), &log.message)
            }
            // A notification of its own: the request still has exactly one response.
            "partial" => {
                let partial: Value = serde_json::from_str(event.data).ok()?;
                let data = json!({ "run_id": run, "partial": partial["data"] });
                self.log(LogLevel::Info, Some("partial_result"), &data)
            }
            _ => None,
        }
    }

    /// The parts are JSON text; put together by hand because a run may tell a hundred thousand.
    pub(super) fn progress(
        &self,
        progress: &str,
        total: Option<&str>,
        message: Option<&str>,
    ) -> Option<String> {
        let token = self.token.as_ref()?;
        let mut text = String::with_capacity(160);
        text.push_str(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"#);
        text.push_str(r#""progressToken":"#);
        text.push_str(token);
        text.push_str(r#","progress":"#);
        text.push_str(progress);
        for (name, value) in [(r#","total":"#, total), (r#","message":"#, message)] {
            if let Some(value) = value.filter(|value| *value != "null") {
                text.push_str(name);
                text.push_str(value);
            }
        }
        text.push_str("}}");
        Some(text)
    }

    fn log(&self, level: LogLevel, logger: Option<&str>, data: &Value) -> Option<String> {
        self.log_level.filter(|wanted| level >= *wanted)?;
        let params = json!({ "level": level, "logger": logger, "data": data });
        Some(message::notification("notifications/message", &params))
    }
}

#[cfg(test)]
mod tests {
    use shikiri_model::time::Timestamp;

    use super::*;

    fn notify(filter: &NotificationFilter, kind: &str, data: &str) -> Option<Value> {
        let event = EventRef { seq: 1, at: Timestamp::default(), kind, data };
        let text = filter.notification(&"run_1".parse().unwrap(), event)?;
        Some(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn progress_is_told_under_the_callers_token_and_only_to_who_gave_one() {
        let data = r#"{"index":3,"progress":25.0,"total":100.0,"message":"検索 \"x\""}"#;
        let filter = NotificationFilter { token: Some("\"tök\"".to_owned()), log_level: None };
        let params = &notify(&filter, "progress", data).unwrap()["params"];
        assert_eq!(
            *params,
            json!({
                "progressToken": "tök", "progress": 25.0, "total": 100.0, "message": "検索 \"x\""
            })
        );
        let silent = NotificationFilter { token: None, log_level: None };
        assert_eq!(notify(&silent, "progress", data), None);
    }

    #[test]
    fn logs_are_told_from_the_wanted_level_on() {
        let data = r#"{"index":1,"level":"info","logger":"long_running_agent","message":"一"}"#;
        let filter = |log_level| NotificationFilter { token: None, log_level };
        let message = notify(&filter(Some(LogLevel::Info)), "log", data).unwrap();
        assert_eq!(message["method"], "notifications/message");
        assert_eq!(
            message["params"],
            json!({ "level": "info", "logger": "long_running_agent", "data": "一" })
        );
        assert_eq!(notify(&filter(Some(LogLevel::Warning)), "log", data), None);
        assert_eq!(notify(&filter(None), "log", data), None);
    }

    #[test]
    fn a_partial_result_is_a_notification_and_never_a_response() {
        let filter = NotificationFilter { token: None, log_level: Some(LogLevel::Debug) };
        let message = notify(&filter, "partial", r#"{"index":1,"data":[1,2]}"#).unwrap();
        assert!(message.get("id").is_none() && message.get("result").is_none());
        assert_eq!(message["params"]["data"]["partial"], json!([1, 2]));
    }

    #[test]
    fn what_is_the_runs_own_business_is_not_told() {
        let filter =
            NotificationFilter { token: Some("1".to_owned()), log_level: Some(LogLevel::Debug) };
        for kind in ["queued", "started", "step_started", "step_completed", "answer", "waiting"] {
            assert_eq!(notify(&filter, kind, "{}"), None, "{kind}");
        }
    }
}
