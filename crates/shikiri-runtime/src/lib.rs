//! Durable runs on the event log.
//!
//! A *run* is one piece of agent work with one event stream. This crate executes runs: a
//! [`run::WorkerNode`] joins under a lease, claims due runs and executes them; the journal of a run
//! lets its agent be replayed after a crash; a sweep requeues the runs of nodes that died.
//!
//! It knows no domain. A domain registers
//! - a [`run::RunHandler`] for runs that are not journaled agents (executions are the only kind),
//! - [`run::BackgroundTask`]s that every node performs (expiry, sweeps),
//! - [`run::DurableAgent`]s, the agents whose steps are journaled.
//!
//! What all domains share is here too: [`Runtime`] (store, options, records of tenants, audit,
//! storage quotas, sealed secrets), [`Watch`] (a cursor that replays a stream, then follows it) and
//! [`AppError`].
//!
//! Start at [`Runtime`], then read `run/start_run.rs` and `run/worker.rs`.
//!
//! # How a run starts and is followed
//!
//! 1. `run/start_run.rs`: the agent checks the input, and [`shikiri_model::run::decide()`] makes
//!    the first events. One commit holds the record and the event `queued`. If this process has a
//!    free slot, the same commit starts the run, and step 2 is skipped.
//! 2. `run/worker.rs`: a node claims the due record, commits the start, reads the stream into a
//!    journal and polls the agent (`run/run_driver.rs`).
//! 3. The agent's [`run::RunContext`] writes through the [`run::Outbox`]. Progress and logs do not
//!    wait for the store. A step waits until its `step_started` is durable, works, and waits until
//!    its `step_completed` is.
//! 4. A [`Watch`] subscribes to the stream, reads what is stored after its cursor, then follows.
//! 5. The agent returns. One commit writes the record and the last event and closes the stream, and
//!    every watch ends.
//!
//! # What `kill -9` leaves
//!
//! 1. Readers saw committed events only.
//! 2. The lease of the dead node runs out. A start on the same machine does not wait for that: the
//!    liveness file of the dead process is not locked any more (`run/liveness_file.rs`).
//! 3. Another node sweeps (`run/dead_node_sweep.rs`). It takes the node's lease first, which fences the
//!    dead node, and then puts its runs back in the queue. A run that its handler cannot resume is
//!    ended by [`run::RunHandler::abort`]: an execution becomes `INTERRUPTED` and keeps its costs.
//! 4. A worker claims the run and replays it. Recorded steps give their results, an open question
//!    stays open, and a step without an outcome is treated as its [`run::UnknownStepPolicy`] says.
//! 5. A process that was only paused finds its writes refused, drops its runs and joins under a new
//!    node id.

pub mod audit;
pub mod error;
pub mod failpoint;
pub mod field_checks;
mod lease_keeper;
pub mod leased_change;
mod metered_store;
mod records;
pub mod run;
mod runtime;
pub mod sealing;
pub mod storage;
mod transact;
mod watch;

pub use error::AppError;
pub use lease_keeper::keep_leases;
pub use metered_store::ProcessMetrics;
pub use runtime::{Runtime, RuntimeOptions, busy, entropy, max_tries, random};
pub use shikiri_files::private_file;
pub use transact::transact;
pub use watch::{EventBatch, Watch, WatchError};
