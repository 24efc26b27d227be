//! The redirect target of a login: a listener on this machine that is open for one login.

use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long a login may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout for a request's head. A browser may also open connections without using them.
const HEAD: Duration = Duration::from_secs(10);
const MAX_HEAD: usize = 32 * 1024;
const MAX_CONNECTIONS: usize = 16;
const PATH: &str = "/callback";

pub(super) struct CallbackListener {
    listener: TcpListener,
    address: String,
}

/// The parameters of the redirect.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallbackParams {
    pub(super) code: String,
    pub(super) state: String,
    pub(super) issuer: Option<String>,
}

impl CallbackListener {
    /// Opens a free port, unless the registration names one.
    pub(super) async fn open(port: Option<u16>) -> Result<Self, String> {
        let port = port.unwrap_or(0);
        let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| {
            format!("the port {port} for the way back from the browser cannot be had: {error}")
        })?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        Ok(Self { listener, address: format!("http://{address}{PATH}") })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Waits for the browser. An answer with another `state` ends the wait: it belongs to another
    /// login, which must not become ours.
    pub(super) async fn wait(self, state: &str) -> Result<CallbackParams, String> {
        let waiting = self.take(state);
        let minutes = LOGIN_TIMEOUT.as_secs() / 60;
        let waited = tokio::time::timeout(LOGIN_TIMEOUT, waiting).await;
        waited.map_err(|_| format!("there was no login within {minutes} minutes"))?
    }

    async fn take(self, state: &str) -> Result<CallbackParams, String> {
        let mut visits = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if visits.len() < MAX_CONNECTIONS => {
                    let Ok((stream, _)) = accepted else { continue };
                    let state = state.to_owned();
                    visits.spawn(async move { visit(stream, &state).await });
                }
                Some(visited) = visits.join_next() => {
                    if let Ok(Some(brought)) = visited {
                        return brought;
                    }
                }
            }
        }
    }
}

/// None for another request, such as one for the page's icon.
async fn visit(mut stream: TcpStream, state: &str) -> Option<Result<CallbackParams, String>> {
    let head = tokio::time::timeout(HEAD, read_head(&mut stream)).await.ok()??;
    let (status, page, brought) = match target(&head).map(|url| read(&url, state)) {
        None => ("404 Not Found", "There is nothing here.", None),
        Some(Ok(brought)) => {
            ("200 OK", "You may close this page and go back to the terminal.", Some(Ok(brought)))
        }
        Some(Err(why)) => {
            let page = "This login did not work. The terminal says why.";
            ("400 Bad Request", page, Some(Err(why)))
        }
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    // The browser may have disconnected: its parameters are already read.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    brought
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let many = stream.read(&mut buffer).await.ok()?;
        head.extend_from_slice(&buffer[..many]);
        if many == 0 || head.len() > MAX_HEAD {
            return None;
        }
    }
    String::from_utf8(head).ok()
}

fn target(head: &str) -> Option<Url> {
    let rest = head.lines().next()?.strip_prefix("GET ")?;
    let target = rest.split(' ').next().filter(|target| target.starts_with('/'))?;
    let url = Url::parse(&format!("http://127.0.0.1{target}")).ok()?;
    (url.path() == PATH).then_some(url)
}

fn read(url: &Url, state: &str) -> Result<CallbackParams, String> {
    let said = |wanted: &str| {
        url.query_pairs().find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    if said("state").as_deref() != Some(state) {
        return Err(
            "the browser came back from another login than ours (its state is wrong)".to_owned()
        );
    }
    if let Some(error) = said("error") {
        let why = said("error_description").map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(format!("the login was refused: {error}{why}"));
    }
    let code = said("code").ok_or("the browser came back without a code")?;
    Ok(CallbackParams { code, state: state.to_owned(), issuer: said("iss") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(query: &str) -> Result<CallbackParams, String> {
        read(&target(&format!("GET /callback?{query} HTTP/1.1\r\n\r\n")).unwrap(), "s1")
    }

    #[test]
    fn only_the_answer_to_our_own_question_is_taken() {
        let brought = CallbackParams {
            code: "a b".to_owned(),
            state: "s1".to_owned(),
            issuer: Some("https://a/".to_owned()),
        };
        assert_eq!(come("code=a%20b&state=s1&iss=https%3A%2F%2Fa%2F"), Ok(brought));
        assert!(come("code=a&state=s2").unwrap_err().contains("state"));
        assert!(come("code=a").unwrap_err().contains("state"));
        assert!(come("state=s1").unwrap_err().contains("without a code"));
        let refused = come("state=s1&error=access_denied&error_description=no").unwrap_err();
        assert_eq!(refused, "the login was refused: access_denied (no)");
        assert_eq!(target("GET /favicon.ico HTTP/1.1\r\n\r\n"), None);
        assert_eq!(target("POST /callback?code=a HTTP/1.1\r\n\r\n"), None);
        assert_eq!(target("GET http://elsewhere/callback HTTP/1.1\r\n\r\n"), None);
    }

    #[tokio::test]
    async fn a_silent_connection_and_other_pages_do_not_end_the_wait() {
        let listener = CallbackListener::open(None).await.unwrap();
        let address = listener.address().to_owned();
        let socket_address = Url::parse(&address).unwrap().socket_addrs(|| None).unwrap()[0];
        let waiting = tokio::spawn(listener.wait("s1"));
        let _silent = TcpStream::connect(socket_address).await.unwrap();
        for target in ["/favicon.ico", "/callback?code=c&state=s1"] {
            let mut stream = TcpStream::connect(socket_address).await.unwrap();
            let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        }
        assert_eq!(waiting.await.unwrap().unwrap().code, "c");
    }
}
