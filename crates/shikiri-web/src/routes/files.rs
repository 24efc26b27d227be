//! `/v1/tenants/{t}/conversations/{c}/files`: what lies in a conversation's workspace, byte for
//! byte. Files pass through in pieces; none is ever held in memory as a whole.

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
use shikiri_app::gate::BodyMemory;
use shikiri_app::workspace::{FilePath, MAX_FILE, Upload};
use shikiri_model::ids::ConversationId;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

use super::created;
use crate::access::{ConversationAccess, TenantAccess, path_id};
use crate::error::{Code, Problem};
use crate::openapi::{Failures, Guarded};
use crate::state::Shared;
use crate::views::{FileJson, Page};

/// Between two pieces of a body.
const PAUSE: Duration = Duration::from_secs(8);
/// For a whole body: 100 MiB over a slow line, but not for ever.
const TOTAL: Duration = Duration::from_secs(600);
/// A body that is refused is still read up to here, so that the sender gets to our answer instead
/// of a broken connection.
const MAX_SKIPPED: u64 = MAX_FILE + 16 * 1024 * 1024;
/// Read from the disk at once.
const PIECE: usize = 64 * 1024;
/// What one upload holds in memory.
const UPLOAD_MEMORY: usize = 256 * 1024;

/// The bytes of a file.
#[derive(ToSchema)]
#[schema(as = FileBytes, value_type = String, format = Binary)]
#[expect(dead_code, reason = "read by utoipa alone")]
pub(crate) struct FileBytes(Vec<u8>);

/// As `ConversationAccess`, with the file in the path, which is only known to have a valid name.
pub(crate) struct FileAccess {
    of: ConversationAccess,
    path: FilePath,
}

impl FromRequestParts<Shared> for FileAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let of = ConversationAccess::from_request_parts(parts, web).await?;
        let path = FilePath::parse(&path_id(parts, "path").await)?;
        Ok(Self { of, path })
    }
}

/// Lists the files of a conversation's workspace by path, at most 10,000
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations/{c}/files", tag = "files",
    params(("t" = String, Path), ("c" = String, Path)),
    responses((status = 200, description = "All files on one page", body = Page<FileJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_files(
    ConversationAccess { access, conversation }: ConversationAccess,
    State(web): State<Shared>,
) -> Result<axum::Json<Page<FileJson>>, Problem> {
    let files = web.app.list_files(&access.tenant, &conversation).await?;
    Ok(axum::Json(Page::new((files, None))))
}

/// Puts a file into the workspace, at most 100 MiB, in place of one of the same name
#[utoipa::path(put, path = "/v1/tenants/{t}/conversations/{c}/files/{*path}", tag = "files",
    params(("t" = String, Path), ("c" = String, Path),
        ("path" = String, Path, description = "Relative; slashes part folders")),
    request_body(content = FileBytes, content_type = "application/octet-stream"),
    responses((status = 201, description = "A new file", body = FileJson),
        (status = 200, description = "A new version of a file", body = FileJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn put_file(
    FileAccess { of: ConversationAccess { access, conversation }, path }: FileAccess,
    State(web): State<Shared>,
    request: Request,
) -> Result<Response, Problem> {
    // What is on its way from the connection to the disk.
    let memory = request.extensions().get::<Arc<BodyMemory>>().cloned();
    if let Some(memory) = &memory {
        memory.grow(UPLOAD_MEMORY).await?;
    }
    let location = location(&access, &conversation, &path);
    let mut incoming = Incoming::of(request);
    let announced = incoming.body.size_hint().lower();
    let starting = web.app.start_upload(&access.tenant, &conversation, path, announced);
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
    responses((status = 200, description = "The file", body = FileBytes, content_type = "application/octet-stream"), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn get_file(
    FileAccess { of: ConversationAccess { access, conversation }, path }: FileAccess,
    State(web): State<Shared>,
) -> Result<Response, Problem> {
    let attachment = format!("attachment; filename*=UTF-8''{}", encoded(path.name()));
    let (record, file) = web.app.read_file(&access.tenant, &conversation, path).await?;
    let mut response = Body::from_stream(pieces(file, record.size)).into_response();
    let headers = response.headers_mut();
    // Whatever an agent wrote: a browser must keep it, not run it.
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
    responses((status = 204, description = "Removed"), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn remove_file(
    FileAccess { of: ConversationAccess { access, conversation }, path }: FileAccess,
    State(web): State<Shared>,
) -> Result<StatusCode, Problem> {
    web.app.remove_file(&access.tenant, &conversation, path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A body that is read piece by piece.
struct Incoming {
    body: Body,
    seen: u64,
    end: Instant,
    /// The sender has sent nothing yet: it waits to be told to go on.
    waits: bool,
    /// Nothing more will come.
    is_over: bool,
}

impl Incoming {
    fn of(request: Request) -> Self {
        let waits = expects(request.headers());
        let (body, end) = (request.into_body(), Instant::now() + TOTAL);
        Self { body, seen: 0, end, waits, is_over: false }
    }

    async fn receive(&mut self, mut upload: Upload) -> Result<Upload, Problem> {
        self.waits = false;
        while let Some(piece) = self.next().await? {
            upload.write(&piece).await?;
        }
        Ok(upload)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let piece = self.wait().await;
        self.is_over = !matches!(piece, Ok(Some(_)));
        piece
    }

    async fn wait(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let deadline = self.end.min(Instant::now() + PAUSE);
            let Ok(frame) = timeout_at(deadline, self.body.frame()).await else {
                let detail = "the body did not arrive in time: send it again";
                return Err(Problem::new(Code::RequestTimeout, detail));
            };
            let Some(frame) = frame else { return Ok(None) };
            let broke_off = |_| Problem::new(Code::InvalidRequest, "the body broke off");
            // What is not data is a trailer.
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

fn expects(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

/// The first `size` bytes: a file that grows meanwhile must not outgrow what was announced.
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

/// For a part of a URL, and for a header's extended value (RFC 8187).
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let each = text.bytes().map(|byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    each.collect()
}
