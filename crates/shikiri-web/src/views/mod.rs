//! What the outside sees of things, as JSON. The command line prints the same.

mod key;
mod run;
mod tenant;

use serde::Serialize;
use shikiri_model::record::Position;
use utoipa::ToSchema;

pub use key::{KeyJson, MadeKey};
pub use run::RunJson;
pub(crate) use run::Status as RunStatusJson;
pub(crate) use tenant::Status as TenantStatusJson;
pub use tenant::TenantJson;

/// A page of a list.
#[derive(Serialize, ToSchema)]
pub struct Page<T> {
    items: Vec<T>,
    /// Where the next page starts; null on the last.
    next_cursor: Option<String>,
}

impl<T> Page<T> {
    pub fn new<U>((items, next): (Vec<U>, Option<Position>)) -> Self
    where
        T: From<U>,
    {
        Self {
            items: items.into_iter().map(T::from).collect(),
            next_cursor: next.map(|position| position.encode()),
        }
    }
}
