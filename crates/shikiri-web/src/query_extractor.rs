//! Query strings: strict like bodies, with one form of paging for all lists.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use shikiri_model::record::RecordPosition;

use crate::problem_response::{Code, ProblemResponse};

pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemResponse> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        let query =
            query.map_err(|error| ProblemResponse::new(Code::InvalidRequest, error.body_text()))?;
        Ok(Self(query.0))
    }
}

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

/// The query of a list: its filters, and the paging of all lists.
macro_rules! list_query {
    ($name:ident { $($(#[$meta:meta])* $filter:ident: $type:ty,)* }) => {
        #[derive(serde::Deserialize, utoipa::IntoParams)]
        #[serde(deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub(crate) struct $name {
            $($(#[$meta])* $filter: $type,)*
            /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
            #[param(minimum = 1, maximum = 200, default = 50)]
            pub(crate) limit: Option<u32>,
            /// `next_cursor` of the page before.
            pub(crate) cursor: Option<String>,
        }

        impl $name {
            pub(crate) fn position_and_limit(
                &self,
            ) -> Result<
                (Option<shikiri_model::record::RecordPosition>, u32),
                crate::problem_response::ProblemResponse,
            > {
                crate::query_extractor::parse_paging(self.limit, self.cursor.as_deref())
            }
        }
    };
}
pub(crate) use list_query;

list_query!(PageQuery {});

pub(crate) fn parse_paging(
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<(Option<RecordPosition>, u32), ProblemResponse> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ProblemResponse::invalid("limit", "must be 1 to 200"));
    }
    let invalid = || ProblemResponse::invalid("cursor", "is not a `next_cursor` of this list");
    let after = cursor.map(|text| RecordPosition::decode(text).ok_or_else(invalid));
    Ok((after.transpose()?, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_bounded_and_its_cursor_is_one_of_ours() {
        let read = |limit, cursor: Option<&str>| {
            parse_paging(limit, cursor)
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
