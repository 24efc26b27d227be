//! Foreign Host and Origin: no web page may reach this server through its visitor's browser.

use shikiri_testkit::TestApp;

use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_and_origins_are_403_whatever_the_key() {
    let app = TestApp::new(PROGRAM).start().await;
    let (client, port) = (app.client(), app.port());
    let own = format!("127.0.0.1:{port}");
    let hosts = [
        ("evil.example", 403),
        ("evil.example:80", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("169.254.169.254", 403),
        ("localhost", 200),
        ("[::1]:9", 200),
        (own.as_str(), 200),
    ];
    for path in ["/v1/tenants", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"] {
        for (host, status) in hosts {
            let request = client.request(reqwest::Method::GET, path).header("host", host);
            assert_eq!(client.send(request).await.status, status, "Host: {host} on {path}");
        }
    }
    let origins = [
        ("http://evil.example".to_owned(), 403),
        ("null".to_owned(), 403),
        ("file://".to_owned(), 403),
        (format!("http://evil.example:{port}"), 403),
        ("http://localhost:1".to_owned(), 403),
        (format!("http://localhost:{port}"), 200),
        (format!("http://127.0.0.1:{port}"), 200),
    ];
    for path in ["/v1/tenants", "/healthz"] {
        for (origin, status) in &origins {
            let request = client.request(reqwest::Method::GET, path).header("origin", origin);
            assert_eq!(client.send(request).await.status, *status, "Origin: {origin} on {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_or_two_keys_in_one_request_are_refused() {
    let app = TestApp::new(PROGRAM).start().await;
    let key = app.admin_key();
    let cases = [
        ("Host: localhost\r\nHost: evil.example\r\n".to_owned(), 400),
        ("Host: localhost\r\nAuthorization: Bearer x\r\n".to_owned(), 401),
        (String::new(), 400),
    ];
    for (headers, status) in cases {
        let mut wire = crate::wire::Wire::open(app.port()).await;
        wire.send(&format!(
            "GET /v1/tenants HTTP/1.1\r\n{headers}Authorization: Bearer {key}\r\n\
             Connection: close\r\n\r\n"
        ))
        .await;
        let answer = wire.rest(std::time::Duration::from_secs(30)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{headers:?}: {answer}");
    }
}
