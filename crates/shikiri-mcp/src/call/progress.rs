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
}

/// Where a caller stands that comes in at `from`: known only if nothing follows, because what
/// follows is told before anything is said again.
pub(super) async fn last_progress(
    app: &App,
    run: &RunId,
    caller: &Caller,
    from: Seq,
) -> Result<Option<LastProgress>, AppError> {
    if from == 0 {
        return Ok(LastProgress::read(r#"{"progress":0,"message":"queued"}"#));
    }
    let state = app.store().stream(&caller.connection.tenant, &stream_of(run)).await?;
    let note = state.filter(|state| state.extent.head <= from).and_then(|state| state.note);
    Ok(note.and_then(|note| LastProgress::read(&note)))
}

impl LastProgress {
    pub(super) fn read(note: &str) -> Option<Self> {
        let note: Value = serde_json::from_str(note).ok()?;
        Some(Self {
            value: note["progress"].as_f64()?,
            total: note.get("total").cloned(),
            message: note.get("message").cloned(),
            since: Instant::now(),
        })
    }

    /// The specification wants every value above the one before: a millionth per second is.
    pub(super) fn again(&self, wishes: &Wishes) -> Option<String> {
        let silent = self.since.elapsed().as_secs();
        let value = self.value + f64::from(u32::try_from(silent).unwrap_or(u32::MAX)) / 1e6;
        let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
        let (total, message) = (text(&self.total), text(&self.message));
        wishes.progress(&value.to_string(), total.as_deref(), message.as_deref())
    }
}
