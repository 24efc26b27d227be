//! Plans: calls at several servers that use one another's results.
//!
//! A plan is the content of a file and is checked before any call. A run of the plan holds the
//! state of each task. Every decision is a function of the run, the event and the time.
//!
//! ```text
//! waiting → running → done | failed
//!    ↑         │
//!    └─ again ─┘        waiting → skipped, when what it needs failed
//! ```

mod plan_check;
mod plan_file;
mod plan_run;
mod result_reference;
mod synthesis;
mod task_result;
mod task_scheduling;
#[cfg(test)]
mod tests;

pub use plan_check::PlanError;
pub use plan_file::{HostPlan, MAX_PLAN, PlanSynthesis, PlanTask, ServerNames};
pub use plan_run::{PlanRun, PlanState, PlanTaskRun, PlanTaskState};
pub use synthesis::{MissingResult, SynthesisAuthor, SynthesisText};
pub use task_result::PlanTaskResult;
pub use task_scheduling::{MAX_PARALLEL, PlanTaskDecision, PlanTaskOutcome, ToolOffers};
