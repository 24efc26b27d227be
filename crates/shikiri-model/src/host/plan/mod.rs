//! Plans: calls at several servers that need one another's results.
//!
//! A plan is a file's content, checked before anything is called. A run of it says what became of
//! each task; every decision on it is a function of the run, the news and the time.
//!
//! ```text
//! waiting → running → done | failed
//!    ↑         │
//!    └─ again ─┘        waiting → skipped, when what it needs failed
//! ```

mod check;
mod file;
mod follow;
mod reference;
mod result;
mod run;
mod synthesis;
#[cfg(test)]
mod tests;

pub use check::PlanError;
pub use file::{MAX_PLAN, Plan, PlanTask, Servers, Synthesis};
pub use follow::{Followed, MAX_PARALLEL, Offers, TaskOutcome};
pub use result::TaskResult;
pub use run::{PlanRun, PlanState, TaskRun, TaskState};
pub use synthesis::{Missing, Written, WrittenBy};
