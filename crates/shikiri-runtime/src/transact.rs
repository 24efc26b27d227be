//! The retry of a transaction whose records another writer changed first.

use std::future::Future;

use crate::error::AppError;
use crate::runtime::{busy, max_tries};

/// Repeats `attempt` until it commits. An attempt reads, decides and commits; it returns `None` if
/// another writer changed what it had read. After [`max_tries`] attempts the caller is told that
/// the `kind` with this `id` is busy.
pub async fn transact<T, E, A>(kind: &str, id: &str, mut attempt: impl FnMut() -> A) -> Result<T, E>
where
    E: From<AppError>,
    A: Future<Output = Result<Option<T>, E>>,
{
    for _ in 0..max_tries() {
        if let Some(done) = attempt().await? {
            return Ok(done);
        }
    }
    Err(busy(kind, id).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn transact_repeats_until_an_attempt_commits() {
        let mut attempts = 0;
        let third = transact("run", "run_1", || {
            attempts += 1;
            let done = (attempts == 3).then_some("committed");
            async move { Ok::<_, AppError>(done) }
        });
        assert_eq!(third.await.unwrap(), "committed");
        assert_eq!(attempts, 3);
    }

    #[tokio::test]
    async fn transact_gives_up_and_names_what_is_busy() {
        let never = transact("run", "run_1", || async { Ok::<Option<()>, AppError>(None) });
        let AppError::Unavailable(text) = never.await.unwrap_err() else { panic!("not busy") };
        assert_eq!(text, "run run_1 is changing too fast: try again");
    }
}
