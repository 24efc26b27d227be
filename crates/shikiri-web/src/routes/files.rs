//! `/v1/tenants/{t}/conversations/{c}/files`: the files of a conversation's workspace, byte for
//! byte. Files are streamed; none is held in memory as a whole.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, stream};
use http_body_util::BodyExt as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use shikiri_executions::workspace::{FilePath, FileUpload, MAX_FILE};
use shikiri_model::ids::ConversationId;
use shikiri_tenancy::gate::BodyMemory;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::{TenantAccess, path_id};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::ConversationAccess;
use crate::problem_response::{Code, ProblemResponse};
use crate::views::{FileJson, ListPage};
use crate::web_state::SharedWebState;

/// Between two pieces of a body.
const PAUSE: Duration = Duration::from_secs(8);
/// For a whole body: 100 MiB over a slow line, but not for ever.
const TOTAL: Duration = Duration::from_secs(600);
/// A refused body is still read up to here, so that the sender receives our answer instead of a
/// broken connection.
const MAX_SKIPPED: u64 = MAX_FILE + 16 * 1024 * 1024;
/// Read from the disk at once.
const PIECE: usize = 64 * 1024;
/// Memory reserved for one upload.
const UPLOAD_MEMORY: usize = 256 * 1024;

/// Everything but letters, digits and `-._~`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The bytes of a file.
#[derive(ToSchema)]
#[schema(as = FileBytes, value_type = String, format = Binary)]
#[expect(dead_code, reason = "read by utoipa alone")]
pub(crate) struct FileBytes(Vec<u8>);

/// As `ConversationAccess`, with the file in the path. Only its name has been checked.
pub(crate) struct FileAccess {
    of: ConversationAccess,
    path: FilePath,
}

impl FromRequestParts<SharedWebState> for FileAccess {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        let of = ConversationAccess::from_request_parts(parts, web).await?;
        let path = FilePath::parse(&path_id(parts, "path").await)?;
        Ok(Self { of, path })
    }
}

/// Lists the files of a conversation's workspace by path, at most 10,000
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations/{c}/files", tag = "files",
    params(("t" = String, Path), ("c" = String, Path)),
    responses((status = 200, description = "All files on one page", body = ListPage<FileJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_files(
    ConversationAccess { access, id: conversation }: ConversationAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<ListPage<FileJson>>, ProblemResponse> {
    let files = web.app.executions.list_files(&access.tenant, &conversation).await?;
    Ok(axum::Json(ListPage::new((files, None))))
}

/// Puts a file into the workspace, at most 100 MiB, in place of one of the same name
#[utoipa::path(put, path = "/v1/tenants/{t}/conversations/{c}/files/{*path}", tag = "files",
    params(("t" = String, Path), ("c" = String, Path),
        ("path" = String, Path, description = "Relative; slashes part folders")),
    request_body(content = FileBytes, content_type = "application/octet-stream"),
    responses((status = 201, description = "A new file", body = FileJson),
        (status = 200, description = "A new version of a file", body = FileJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn put_file(
    FileAccess { of: ConversationAccess { access, id: conversation }, path }: FileAccess,
    State(web): State<SharedWebState>,
    request: Request,
) -> Result<Response, ProblemResponse> {
    // For the data on its way from the connection to the disk.
    let memory = request.extensions().get::<Arc<BodyMemory>>().cloned();
    if let Some(memory) = &memory {
        memory.grow(UPLOAD_MEMORY).await?;
    }
    let location = location(&access, &conversation, &path);
    let mut incoming = FileUploadBody::of(request);
    let announced = incoming.body.size_hint().lower();
    let starting = web.app.executions.start_upload(&access.tenant, &conversation, path, announced);
    let upload = match starting.await {
        Ok(upload) => incoming.receive(upload).await,
        Err(error) => Err(error.into()),
    };
    let placed = match upload {
        Ok(upload) => upload.finish().await?,
        Err(problem) => {
            incoming.skip().await;
            return Err(problem);
        }
    };
    let file = FileJson::from(placed.file);
    Ok(match placed.is_new {
        true => created(&location, &file),
        false => axum::Json(file).into_response(),
    })
}

/// Gives a file of the workspace
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations/{c}/files/{*path}", tag = "files",
    params(("t" = String, Path), ("c" = String, Path),
        ("path" = String, Path, description = "Relative; slashes part folders")),
    responses((status = 200, description = "The file", body = FileBytes, content_type = "application/octet-stream"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn get_file(
    FileAccess { of: ConversationAccess { access, id: conversation }, path }: FileAccess,
    State(web): State<SharedWebState>,
) -> Result<Response, ProblemResponse> {
    let attachment = format!("attachment; filename*=UTF-8''{}", encoded(path.name()));
    let (record, file) = web.app.executions.read_file(&access.tenant, &conversation, path).await?;
    let mut response = Body::from_stream(pieces(file, record.size)).into_response();
    let headers = response.headers_mut();
    // An agent may have written anything: a browser must save it, not run it.
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, unknown);
    headers.insert(header::CONTENT_LENGTH, record.size.into());
    if let Ok(attachment) = HeaderValue::from_str(&attachment) {
        headers.insert(header::CONTENT_DISPOSITION, attachment);
    }
    Ok(response)
}

/// Removes a file from the workspace
#[utoipa::path(delete, path = "/v1/tenants/{t}/conversations/{c}/files/{*path}", tag = "files",
    params(("t" = String, Path), ("c" = String, Path),
        ("path" = String, Path, description = "Relative; slashes part folders")),
    responses((status = 204, description = "Removed"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn remove_file(
    FileAccess { of: ConversationAccess { access, id: conversation }, path }: FileAccess,
    State(web): State<SharedWebState>,
) -> Result<StatusCode, ProblemResponse> {
    web.app.executions.remove_file(&access.tenant, &conversation, path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A body that is read piece by piece.
struct FileUploadBody {
    body: Body,
    seen: u64,
    end: Instant,
    /// The sender has sent nothing yet and waits for `100 Continue`.
    waits: bool,
    /// The body has ended.
    is_over: bool,
}

impl FileUploadBody {
    fn of(request: Request) -> Self {
        let waits = has_expect_header(request.headers());
        let (body, end) = (request.into_body(), Instant::now() + TOTAL);
        Self { body, seen: 0, end, waits, is_over: false }
    }

    async fn receive(&mut self, mut upload: FileUpload) -> Result<FileUpload, ProblemResponse> {
        self.waits = false;
        while let Some(piece) = self.next().await? {
            upload.write(&piece).await?;
        }
        Ok(upload)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ProblemResponse> {
        let piece = self.wait().await;
        self.is_over = !matches!(piece, Ok(Some(_)));
        piece
    }

    async fn wait(&mut self) -> Result<Option<Bytes>, ProblemResponse> {
        loop {
            let deadline = self.end.min(Instant::now() + PAUSE);
            let Ok(frame) = timeout_at(deadline, self.body.frame()).await else {
                let detail = "the body did not arrive in time: send it again";
                return Err(ProblemResponse::new(Code::RequestTimeout, detail));
            };
            let Some(frame) = frame else { return Ok(None) };
            let broke_off = |_| ProblemResponse::new(Code::InvalidRequest, "the body broke off");
            // A frame without data is a trailer.
            if let Ok(data) = frame.map_err(broke_off)?.into_data() {
                self.seen += data.len() as u64;
                return Ok(Some(data));
            }
        }
    }

    async fn skip(&mut self) {
        let left = self.body.size_hint().lower();
        if self.waits || self.seen.saturating_add(left) > MAX_SKIPPED {
            return;
        }
        while !self.is_over && self.seen <= MAX_SKIPPED {
            let _ = self.next().await;
        }
    }
}

fn has_expect_header(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

/// The first `size` bytes: a growing file must not exceed the announced length.
fn pieces(file: tokio::fs::File, size: u64) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold(file.take(size), |mut file| async move {
        let mut piece = vec![0; PIECE];
        let count = file.read(&mut piece).await?;
        piece.truncate(count);
        Ok((count > 0).then(|| (Bytes::from(piece), file)))
    })
}

fn location(access: &TenantAccess, conversation: &ConversationId, path: &FilePath) -> String {
    let parts = path.as_str().split('/').map(encoded).collect::<Vec<_>>();
    format!("/v1/tenants/{}/conversations/{conversation}/files/{}", access.tenant, parts.join("/"))
}

/// Percent-encoded, for a part of a URL and for a header's extended value (RFC 8187).
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
