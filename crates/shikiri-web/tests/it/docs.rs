//! The API page: what is sent, to whom, and that the embedded viewer is the one that was published.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use sha2::{Digest, Sha256};

use crate::world::World;

const README: &str = include_str!("../../viewer/README.md");
const FILES: [&str; 3] = ["/", "/docs/start.js", "/docs/viewer.js"];

struct Sent {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Without a key, as a browser asks for files.
async fn send(world: &World, method: &str, path: &str, headers: &[(&str, &str)]) -> Sent {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = world.respond(request.body(Body::empty()).unwrap()).await;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec();
    Sent { status, headers, body }
}

/// The value of a row of the table in the viewer's README.
fn told(row: &str) -> &'static str {
    let line = README.lines().find(|line| line.starts_with(&format!("| {row} |"))).expect(row);
    line.split('|').nth(2).unwrap().trim().trim_matches('`')
}

#[tokio::test]
async fn the_viewer_is_the_published_one() {
    let world = World::new().await;
    let plain = send(&world, "GET", "/docs/viewer.js", &[]).await;
    assert_eq!(plain.status, StatusCode::OK);
    assert!(!plain.headers.contains_key("content-encoding"));
    let sum: String =
        Sha256::digest(&plain.body).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(sum, told("SHA-256"), "of {} bytes", plain.body.len());
    let etag = plain.headers["etag"].to_str().unwrap();
    assert_eq!(etag, format!("\"{}\"", &sum[..16]), "a new viewer needs a new tag");
    // Its own words, so the version that is told is the right one.
    let text = String::from_utf8(plain.body).unwrap();
    assert!(text.contains(told("version")) && text.contains("createApiReference"));

    let packed = send(&world, "GET", "/docs/viewer.js", &[("accept-encoding", "gzip, br")]).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_ne!(packed.headers["etag"], etag, "two representations");
    let inner = &packed.body[10..packed.body.len() - 8];
    assert!(miniz_oxide::inflate::decompress_to_vec(inner).unwrap() == text.as_bytes());
}

#[tokio::test]
async fn the_viewer_is_sent_once_for_each_browser() {
    let world = World::new().await;
    for encoding in ["gzip", "identity"] {
        let accept = ("accept-encoding", encoding);
        let first = send(&world, "GET", "/docs/viewer.js", &[accept]).await;
        assert_eq!(first.headers["cache-control"], "no-cache", "it is asked for, and not sent");
        assert_eq!(first.headers["vary"], "accept-encoding");
        let etag = first.headers["etag"].to_str().unwrap();
        let known = ("if-none-match", etag);
        let second = send(&world, "GET", "/docs/viewer.js", &[accept, known]).await;
        assert_eq!((second.status, second.body.len()), (StatusCode::NOT_MODIFIED, 0));
        assert_eq!(second.headers["etag"], etag);
        let other = ("if-none-match", "\"another\"");
        let third = send(&world, "GET", "/docs/viewer.js", &[accept, other]).await;
        assert_eq!((third.status, third.body.len()), (StatusCode::OK, first.body.len()));
    }
}

#[tokio::test]
async fn the_page_may_load_nothing_from_elsewhere() {
    let world = World::new().await;
    let page = world.call("", "GET", "/docs", None).await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(
        page.headers["content-security-policy"],
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
         img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    assert_eq!(page.headers["referrer-policy"], "no-referrer");
    assert!(!page.text.contains("http://") && !page.text.contains("https://"), "{}", page.text);
    for script in page.text.split("<script").skip(1) {
        assert!(script.starts_with(" src=\"/docs/"), "inline scripts would be refused: {script}");
    }
    let start = world.call("", "GET", "/docs/start.js", None).await;
    assert_eq!(start.headers["content-type"], "text/javascript; charset=utf-8");
    assert!(
        start.text.contains("url: \"/openapi.json\"") && start.text.contains("telemetry: false")
    );
}

#[tokio::test]
async fn the_start_page_leads_to_the_docs() {
    let world = World::new().await;
    for method in ["GET", "HEAD"] {
        let sent = send(&world, method, "/", &[]).await;
        assert_eq!(sent.status, StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(sent.headers["location"], "/docs");
    }
    let posted = world.call("", "POST", "/", None).await;
    assert_eq!(posted.problem(), (405, "METHOD_NOT_ALLOWED".to_owned()));
}

#[tokio::test]
async fn the_files_of_the_page_are_no_operations_and_need_no_key() {
    let world = World::new().await;
    let operations = shikiri_web::operations();
    for path in FILES {
        assert!(!operations.iter().any(|(_, listed)| listed == path), "{path}");
        let sent = send(&world, "HEAD", path, &[]).await;
        assert!(
            sent.status.is_success() || sent.status.is_redirection(),
            "{path}: {}",
            sent.status
        );
        assert_eq!(sent.headers["x-content-type-options"], "nosniff");
        assert!(sent.body.is_empty(), "{path}: {} bytes for HEAD", sent.body.len());
    }
    // What is beside them is as before: nothing, and for those with a key alone.
    for path in ["/docs/", "/docs/viewer.js/", "/docs/other.js", "/docs/../v1/tenants", "//"] {
        assert_eq!(send(&world, "GET", path, &[]).await.status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(world.get(path).await.problem(), (404, "NOT_FOUND".to_owned()), "{path}");
    }
}
