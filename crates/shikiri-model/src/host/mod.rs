//! The host: Shikiri as a client of MCP servers.
//!
//! A call is stored while it is made: the request, its session, the position in its stream, and the
//! task or run that it became. If its process dies, another process resumes the call there. An
//! event is stored before it is shown, so no event is shown twice.

mod call_event;
#[cfg(test)]
mod call_tests;
mod elicitation_form;
mod host_call;
pub mod plan;
mod resume_point;
mod server_specs;
mod terminal_text;

pub use call_event::{CallEvent, CallLogLine, CallOutcome, CallProgress, CallQuestion};
pub use elicitation_form::{ElicitationForm, FormAnswer, FormError, FormField, FormFieldKind};
pub use host_call::{HostCall, HostCallState};
pub use resume_point::{InputRound, RemoteTaskRef, ResumeMethod, ResumePoint};
pub use server_specs::{
    HostTransport, OAuthSpec, ServerSpec, ServerSpecError, expand_variables, http_transport,
    read_servers,
};
pub use terminal_text::{MAX_LINE, sanitize_line, sanitize_text};
