//! The store: one trait, on SQLite (embedded, the default) and PostgreSQL (several nodes).
//!
//! A [`Commit`] holds all changes that belong together: events for streams, records, leases and
//! claims of due records. [`Store::commit`] writes them in one transaction or refuses all of them.
//! [`Store`] also has the reads, [`StoreExt`] the typed and waiting variants, and [`Hub`] wakes
//! subscribers after a commit.
//!
//! Both backends process a batch of commits in the same way. They load the rows that it names,
//! [`batch_decision::decide_batch`] decides without I/O, and they write the result. After the
//! transaction they reply to the callers and wake subscribers. The meaning of a commit is therefore
//! implemented once. A new query goes into both `sqlite` and `postgres`, in files of the same name.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use shikiri_model::event::{NewEvent, StreamId};
//! use shikiri_model::ids::TenantId;
//! use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
//! use shikiri_store::{Commit, Store, StreamAppend};
//!
//! let folder = tempfile::tempdir()?;
//! let store = SqliteStore::open(&folder.path().join("state.db"), SqliteOptions::default())?;
//!
//! let (tenant, stream) = (TenantId::local(), StreamId::new("run/run_1"));
//! let events = vec![NewEvent::new("progress", &25)?, NewEvent::new("progress", &50)?];
//! let append = StreamAppend {
//!     create: true,
//!     ..StreamAppend::to_existing(tenant.clone(), stream.clone(), events)
//! };
//! store.commit(Commit::new().append(append)).await?;
//!
//! let page = store.read(&tenant, &stream, 1, 64 * 1024).await?;
//! let after_first: Vec<_> = page.chunks.iter().flat_map(|chunk| chunk.events_after(1)).collect();
//! assert_eq!((after_first.len(), after_first[0].data), (1, "50"));
//! # Ok(())
//! # }
//! ```

pub mod batch_decision;
pub mod clock;
pub mod commit;
pub mod error;
pub mod hook_store;
pub mod hub;
pub mod postgres;
pub mod sqlite;
pub mod store;

pub use clock::{Clock, FakeClock, SystemClock};
pub use commit::{AppendedRange, Commit, CommitReceipt, StreamAppend};
pub use error::{CommitError, StoreError};
pub use hook_store::{HookEventInput, HookStore};
pub use hub::{Hub, HubSubscription, HubTopic, HubWake};
pub use store::{ChunkPage, Store, StoreExt, StreamState};
