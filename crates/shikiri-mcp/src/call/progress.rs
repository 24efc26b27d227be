//! How far a run is, as its caller was last told.

use serde_json::Value;
use shikiri_app::{App, AppError};
use shikiri_model::event::Seq;
use shikiri_model::ids::RunId;
use shikiri_model::run::stream_of;
use tokio::time::Instant;

use super::render::Wishes;
use crate::client::Caller;

/// For heartbeats, which say the same again, a little further.
pub(super) struct LastProgress {
    value: f64,
    total: Option<Value>,
    message: Option<Value>,
    since: Instant,
    /// Until the caller has been told this event, nothing is said again.
    at: Seq,
}

/// Said again a little further it is 0, with which many agents begin.
const NOTHING: &str = r#"{"progress":-0.000001}"#;
const QUEUED: &str = r#"{"progress":-0.000001,"message":"queued"}"#;

/// Where a caller stands that comes in at `from`, once it has been told what follows.
pub(super) async fn last_progress(
    app: &App,
    run: &RunId,
    caller: &Caller,
    from: Seq,
) -> Result<Option<LastProgress>, AppError> {
    if from == 0 {
        return Ok(LastProgress::read(QUEUED, 0));
    }
    let Some(state) = app.store().stream(&caller.connection.tenant, &stream_of(run)).await? else {
        return Ok(None);
    };
    let note = state.note.as_deref().unwrap_or(NOTHING);
    Ok(LastProgress::read(note, state.extent.head))
}

impl LastProgress {
    pub(super) fn read(note: &str, at: Seq) -> Option<Self> {
        let note: Value = serde_json::from_str(note).ok()?;
        Some(Self {
            value: note["progress"].as_f64()?,
            total: note.get("total").cloned(),
            message: note.get("message").cloned(),
            since: Instant::now(),
            at,
        })
    }

    /// For a caller that was told everything up to `seen`, this value too. The specification wants
    /// every value above the one before: a millionth per second is.
    pub(super) fn again(&self, wishes: &Wishes, seen: Seq) -> Option<String> {
        if seen < self.at {
            return None;
        }
        let silent = self.since.elapsed().as_secs() + 1;
        let value = self.value + f64::from(u32::try_from(silent).unwrap_or(u32::MAX)) / 1e6;
        let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
        let (total, message) = (text(&self.total), text(&self.message));
        wishes.progress(&value.to_string(), total.as_deref(), message.as_deref())
    }
}
