//! Query strings: strict like bodies, with the one form of paging that all lists have.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use shikiri_model::record::Position;
use utoipa::IntoParams;

use crate::error::{Code, Problem};

pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        let query = query.map_err(|error| Problem::new(Code::InvalidRequest, error.body_text()))?;
        Ok(Self(query.0))
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
    #[param(minimum = 1, maximum = 200, default = 50)]
    pub(crate) limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub(crate) cursor: Option<String>,
}

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

impl Paging {
    pub(crate) fn read(&self) -> Result<(Option<Position>, u32), Problem> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(Problem::invalid("limit", "must be 1 to 200"));
        }
        let after = self.cursor.as_deref().map(|text| {
            Position::decode(text)
                .ok_or_else(|| Problem::invalid("cursor", "is not a `next_cursor` of this list"))
        });
        Ok((after.transpose()?, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_bounded_and_its_cursor_is_one_of_ours() {
        let read = |limit, cursor: Option<&str>| {
            Paging { limit, cursor: cursor.map(str::to_owned) }
                .read()
                .map(|(after, limit)| (after.map(|position| position.encode()), limit))
        };
        assert_eq!(read(None, None), Ok((None, 50)));
        assert_eq!(read(Some(200), Some("1f.run_1")), Ok((Some("1f.run_1".to_owned()), 200)));
        for (limit, cursor) in
            [(Some(0), None), (Some(201), None), (None, Some("")), (None, Some("x"))]
        {
            assert_eq!(read(limit, cursor).unwrap_err().code, Code::InvalidRequest);
        }
    }
}
