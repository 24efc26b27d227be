//! Events of a run as messages of the protocol: one event, at most one message.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use shikiri_model::connection::LogLevel;
use shikiri_model::event::EventRef;
use shikiri_model::ids::RunId;

use crate::message;

#[derive(Deserialize)]
struct Progress<'a> {
    #[serde(borrow)]
    progress: &'a RawValue,
    #[serde(borrow)]
    total: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Log {
    level: LogLevel,
    logger: Option<String>,
    message: Value,
}

/// What a caller wants to be told.
pub(super) struct Wishes {
    /// The progress token as JSON.
    pub(super) token: Option<String>,
    pub(super) log_level: Option<LogLevel>,
}

impl Wishes {
    /// The notification for an event, if it makes one that the caller wants.
    pub(super) fn notification(&self, run: &RunId, event: EventRef<'_>) -> Option<String> {
        match event.kind {
            "progress" => {
                let told: Progress<'_> = serde_json::from_str(event.data).ok()?;
                let (total, message) = (told.total.map(RawValue::get), told.message);
                self.progress(told.progress.get(), total, message.map(RawValue::get))
            }
            "log" => {
                let told: Log = serde_json::from_str(event.data).ok()?;
                self.log(told.level, told.logger.as_deref(), &told.message)
            }
            // A notification of its own: the request still has exactly one response.
            "partial" => {
                let told: Value = serde_json::from_str(event.data).ok()?;
                let data = json!({ "run_id": run, "partial": told["data"] });
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

    fn told(wishes: &Wishes, kind: &str, data: &str) -> Option<Value> {
        let event = EventRef { seq: 1, at: Timestamp::default(), kind, data };
        let text = wishes.notification(&"run_1".parse().unwrap(), event)?;
        Some(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn progress_is_told_under_the_callers_token_and_only_to_who_gave_one() {
        let data = r#"{"index":3,"progress":25.0,"total":100.0,"message":"検索 \"x\""}"#;
        let wishes = Wishes { token: Some("\"tök\"".to_owned()), log_level: None };
        let params = &told(&wishes, "progress", data).unwrap()["params"];
        assert_eq!(
            *params,
            json!({
                "progressToken": "tök", "progress": 25.0, "total": 100.0, "message": "検索 \"x\""
            })
        );
        let silent = Wishes { token: None, log_level: None };
        assert_eq!(told(&silent, "progress", data), None);
    }

    #[test]
    fn logs_are_told_from_the_wanted_level_on() {
        let data = r#"{"index":1,"level":"info","logger":"long_running_agent","message":"一"}"#;
        let wishes = |log_level| Wishes { token: None, log_level };
        let message = told(&wishes(Some(LogLevel::Info)), "log", data).unwrap();
        assert_eq!(message["method"], "notifications/message");
        assert_eq!(
            message["params"],
            json!({ "level": "info", "logger": "long_running_agent", "data": "一" })
        );
        assert_eq!(told(&wishes(Some(LogLevel::Warning)), "log", data), None);
        assert_eq!(told(&wishes(None), "log", data), None);
    }

    #[test]
    fn a_partial_result_is_a_notification_and_never_a_response() {
        let wishes = Wishes { token: None, log_level: Some(LogLevel::Debug) };
        let message = told(&wishes, "partial", r#"{"index":1,"data":[1,2]}"#).unwrap();
        assert!(message.get("id").is_none() && message.get("result").is_none());
        assert_eq!(message["params"]["data"]["partial"], json!([1, 2]));
    }

    #[test]
    fn what_is_the_runs_own_business_is_not_told() {
        let wishes = Wishes { token: Some("1".to_owned()), log_level: Some(LogLevel::Debug) };
        for kind in ["queued", "started", "step_started", "step_completed", "answer", "waiting"] {
            assert_eq!(told(&wishes, kind, "{}"), None, "{kind}");
        }
    }
}
