//! The progress that a caller was last sent, repeated while a run is silent.

use std::time::Duration;

use serde_json::Value;
use shikiri_app::App;
use shikiri_model::event::Seq;
use shikiri_model::ids::RunId;
use shikiri_model::run::{RunStatus, run_stream};
use shikiri_runtime::AppError;

use super::event_notifications::NotificationFilter;
use crate::mcp_caller::McpCaller;

/// For heartbeats, which say the same again, a little further.
pub(super) struct LastProgress {
    value: f64,
    total: Option<Value>,
    message: Option<Value>,
    /// By the run itself.
    is_told: bool,
    /// Until the caller was sent this event, nothing is repeated.
    at: Seq,
}

/// The state for a caller that joins at `from`, once it was sent what follows.
pub(super) async fn last_progress(
    app: &App,
    run: &RunId,
    caller: &McpCaller,
    from: Seq,
) -> Result<Option<LastProgress>, AppError> {
    if from == 0 {
        return Ok(Some(LastProgress::untold(RunStatus::Queued, 0)));
    }
    let tenant = &caller.connection.tenant;
    let Some(state) = app.runtime.store().stream(tenant, &run_stream(run)).await? else {
        return Ok(None);
    };
    let head = state.extent.head;
    if let Some(note) = &state.note {
        return Ok(LastProgress::read(note, head));
    }
    let status = app.runtime.load_run(tenant, run).await?.value.status;
    Ok(Some(LastProgress::untold(status, head)))
}

impl LastProgress {
    pub(super) fn read(note: &str, at: Seq) -> Option<Self> {
        let note: Value = serde_json::from_str(note).ok()?;
        Some(Self {
            value: note["progress"].as_f64()?,
            total: note.get("total").cloned(),
            message: note.get("message").cloned(),
            is_told: true,
            at,
        })
    }

    /// A run that has told nothing of its progress is known by its status.
    fn untold(status: RunStatus, at: Seq) -> Self {
        let message = Some(Value::from(status.as_str()));
        Self { value: 0.0, total: None, message, is_told: false, at }
    }

    /// The run works now, as an event said.
    pub(super) fn started(&mut self) {
        if !self.is_told {
            self.message = Some(Value::from(RunStatus::Running.as_str()));
        }
    }

    /// For a caller that was sent everything up to `seen`, this value too. The specification wants
    /// every value above the one before: a millionth per whole second of the run's age is, over all
    /// the connections on which it is said.
    pub(super) fn again(
        &self,
        filter: &NotificationFilter,
        seen: Seq,
        age: Duration,
    ) -> Option<String> {
        if seen < self.at {
            return None;
        }
        // Before its first progress, a young run is at 0, with which many agents begin.
        let millionths = age.as_secs() + u64::from(self.is_told);
        let value = self.value + millionths as f64 / 1e6;
        // Without the digits that binary fractions add.
        let value = (value * 1e6).round() / 1e6;
        let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
        let (total, message) = (text(&self.total), text(&self.message));
        filter.progress(&value.to_string(), total.as_deref(), message.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(last: &LastProgress, age_ms: u64) -> Value {
        let filter = NotificationFilter { token: Some("1".to_owned()), log_level: None };
        let text = last.again(&filter, 1, Duration::from_millis(age_ms)).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["params"].clone()
    }

    #[test]
    fn a_sign_of_life_tells_the_status_until_the_run_tells_more() {
        let mut last = LastProgress::untold(RunStatus::Queued, 0);
        assert_eq!(beat(&last, 250)["message"], "queued");
        last.started();
        assert_eq!(beat(&last, 300)["message"], "running");
        let mut told = LastProgress::read(r#"{"progress":25.0,"message":"prices"}"#, 1).unwrap();
        told.started();
        assert_eq!(beat(&told, 300)["message"], "prices");
    }

    #[test]
    fn what_is_repeated_rises_by_whole_millionths_without_more_digits() {
        for value in ["0.1", "33.333333", "66.6", "100.0"] {
            let note = format!(r#"{{"progress":{value}}}"#);
            let last = LastProgress::read(&note, 1).unwrap();
            let mut before = last.value;
            for age_ms in [250, 14_250, 28_251, 3_600_000, 86_399_123] {
                let progress = beat(&last, age_ms)["progress"].as_f64().unwrap();
                assert!(progress > before, "{progress} after {before}");
                let digits = progress.to_string();
                let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
                assert!(decimals <= 6, "{digits}");
                before = progress;
            }
        }
    }
}
