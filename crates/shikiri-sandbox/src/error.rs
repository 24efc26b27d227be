//! Errors of making a sandbox.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("{step}: {cause}")]
    Step { step: &'static str, cause: io::Error },
    #[error("{step} {}: {cause}", .place.display())]
    Place { step: &'static str, place: PathBuf, cause: io::Error },
    #[error("Landlock: {0}")]
    Landlock(String),
    #[error("the seccomp filter: {0}")]
    Seccomp(String),
    #[error("the plan cannot be read: {0}")]
    Plan(#[from] serde_json::Error),
    #[error("no program was named")]
    NoProgram,
    #[error("{} does not start: {cause}", .program.display())]
    Start { program: PathBuf, cause: io::Error },
}

/// Names the step that failed.
pub(crate) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> SandboxError {
    move |cause| SandboxError::Step { step, cause: cause.into() }
}

/// Names the step that failed and its path.
pub(crate) fn at<E: Into<io::Error>>(
    step: &'static str,
    place: impl Into<PathBuf>,
) -> impl FnOnce(E) -> SandboxError {
    move |cause| SandboxError::Place { step, place: place.into(), cause: cause.into() }
}
