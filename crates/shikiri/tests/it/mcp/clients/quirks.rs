//! How the official clients differ from what one would expect of them: what each does instead is
//! judged, so a client that is mended shows here.

/// What one version of a client does in its own way.
pub(super) struct Quirks {
    pub(super) version: &'static str,
    /// What it says when a call's stream is cut in the modern era, which has no way back.
    pub(super) cut_call: &'static str,
    /// And when the stream of changes is.
    pub(super) cut_changes: &'static str,
    /// How it complains of a connection that broke off, although it comes back.
    pub(super) complaint: Option<&'static str>,
    /// Steps whose progress it tells twice when a connection with which it came back is cut too.
    pub(super) repeats: &'static [&'static str],
    /// Progress that it makes up itself when a call of the modern era asks back.
    pub(super) own_progress: Option<&'static str>,
    /// How it complains of progress that it read together with the answer: it takes the answer
    /// first, and then no longer knows whom the progress is for. Over HTTP it reads one by one.
    pub(super) late_progress: Option<&'static str>,
}

impl Quirks {
    pub(super) const PYTHON_NEW: Self = Self {
        version: "2.3.0",
        cut_call: "SSE stream ended without a response",
        cut_changes: "SubscriptionLost",
        complaint: None,
        // When it comes back for the second time it asks for what follows the first cut
        // (`_handle_reconnection`).
        repeats: &["step 3 done"],
        own_progress: None,
        late_progress: None,
    };
    pub(super) const PYTHON_OLD: Self = Self { version: "1.30.0", ..Self::PYTHON_NEW };
    pub(super) const TS_NEW: Self = Self {
        version: "2.4.0",
        // It does not notice that a call's stream has ended: only the call's timeout ends it.
        cut_call: "Request timed out",
        cut_changes: "remote",
        complaint: Some("SSE stream disconnected"),
        repeats: &[],
        own_progress: Some("Fulfilling input required by 'tools/call' (round 1)"),
        late_progress: Some("Received a progress notification for an unknown token: "),
    };
    pub(super) const TS_OLD: Self = Self { version: "1.32.2", own_progress: None, ..Self::TS_NEW };
}
