//! Receipts for what an answer shows, confirmed once the answer is written.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use shikiri_teams::DeliveryReceipt;

/// The receipts of one request. What is not confirmed counts as lost.
#[derive(Clone, Default)]
pub struct RequestReceipts(Arc<Mutex<Vec<DeliveryReceipt>>>);

impl RequestReceipts {
    fn all(&self) -> MutexGuard<'_, Vec<DeliveryReceipt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, receipt: Option<DeliveryReceipt>) {
        self.all().extend(receipt.filter(|receipt| !receipt.is_empty()));
    }

    /// The answer is another than the one that they are for.
    pub(crate) fn lose(&self) {
        self.all().clear();
    }

    pub(crate) async fn confirm(&self) {
        let receipts = std::mem::take(&mut *self.all());
        for receipt in receipts {
            receipt.confirm().await;
        }
    }

    /// Confirms when the answer is taken to be sent: its reader may call again at once. If the
    /// client has gone before that, the answer is never taken.
    pub(crate) fn confirm_with(&self, response: Response) -> Response {
        let mut receipts = std::mem::take(&mut *self.all());
        if receipts.is_empty() {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        if let Some(length) = body.size_hint().exact() {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        let body = body.map_frame(move |frame| {
            for receipt in receipts.drain(..) {
                tokio::spawn(receipt.confirm());
            }
            frame
        });
        Response::from_parts(parts, Body::new(body))
    }
}

impl fmt::Debug for RequestReceipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receipts").field(&self.all().len()).finish()
    }
}
