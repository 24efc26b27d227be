use axum::http::HeaderValue;

use super::*;

fn answer(options: &WebOptions, host: Option<&str>, origin: Option<&str>) -> Option<Code> {
    let mut headers = HeaderMap::new();
    for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
        if let Some(value) = value {
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
    }
    let uri = Uri::from_static("/v1/tenants");
    allow(options, &uri, &headers).err().map(|problem| problem.code)
}

fn local() -> WebOptions {
    WebOptions::default()
}

fn remote() -> WebOptions {
    WebOptions {
        listen: ([0, 0, 0, 0], 7420).into(),
        allow_remote: true,
        allowed_hosts: vec!["agents.example.org".to_owned(), "other.example:8443".to_owned()],
        ..WebOptions::default()
    }
}

#[test]
fn a_local_server_answers_to_names_of_this_machine_only() {
    let hosts = ["localhost", "LOCALHOST:7420", "127.0.0.1:7420", "127.9.9.9", "[::1]:7420"];
    for host in hosts {
        assert_eq!(answer(&local(), Some(host), None), None, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:7420",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.0.7:7420",
        "169.254.169.254",
        "0.0.0.0:7420",
        "agents.example.org",
    ] {
        assert_eq!(answer(&local(), Some(host), None), Some(Code::HostNotAllowed), "{host}");
    }
    for host in [None, Some(""), Some("a@localhost"), Some("local host")] {
        assert_eq!(answer(&local(), host, None), Some(Code::InvalidRequest), "{host:?}");
    }
}

#[test]
fn a_remote_server_answers_to_addresses_and_to_the_names_that_were_allowed() {
    for host in ["agents.example.org", "Agents.Example.org:443", "other.example:8443", "10.0.0.5"] {
        assert_eq!(answer(&remote(), Some(host), None), None, "{host}");
    }
    for host in ["evil.example", "other.example", "other.example:1"] {
        assert_eq!(answer(&remote(), Some(host), None), Some(Code::HostNotAllowed), "{host}");
    }
}

#[test]
fn only_pages_of_this_server_may_call_it() {
    let host = Some("127.0.0.1:7420");
    for origin in ["http://127.0.0.1:7420", "http://localhost:7420", "http://[::1]:7420"] {
        assert_eq!(answer(&local(), host, Some(origin)), None, "{origin}");
    }
    for origin in [
        "null",
        "",
        "file://",
        "http://evil.example",
        "http://127.0.0.1:3000",
        "http://localhost",
        "http://localhost.evil.example:7420",
        "chrome-extension://localhost:7420",
        "localhost:7420",
    ] {
        assert_eq!(answer(&local(), host, Some(origin)), Some(Code::OriginNotAllowed), "{origin}");
    }
    let host = Some("agents.example.org");
    assert_eq!(answer(&remote(), host, Some("https://agents.example.org")), None);
    assert_eq!(answer(&remote(), host, Some("https://other.example:8443")), None);
    let foreign = answer(&remote(), host, Some("https://evil.example"));
    assert_eq!(foreign, Some(Code::OriginNotAllowed));
}

#[test]
fn a_header_that_comes_twice_is_refused() {
    let mut headers = HeaderMap::new();
    headers.append(header::HOST, HeaderValue::from_static("localhost"));
    headers.append(header::HOST, HeaderValue::from_static("evil.example"));
    assert!(allow(&local(), &Uri::from_static("/"), &headers).is_err());
}

#[test]
fn a_full_address_in_the_request_line_is_checked_too() {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    let foreign = Uri::from_static("http://evil.example/v1/tenants");
    assert!(allow(&local(), &foreign, &headers).is_err());
    assert!(allow(&local(), &Uri::from_static("http://localhost:7420/"), &headers).is_ok());
}
