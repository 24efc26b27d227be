use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use shikiri_model::host::{HostTransport, OAuthSpec, ServerSpec};
use shikiri_testkit::FakeLogin;

use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber as _;
use tracing::span;

use super::{LoginBrowser, OAuthTokenProvider, TokenStore};
use crate::error::ClientError;
use crate::server::{ClientOptions, ServerConnection};
use crate::token_provider::TokenProvider;

/// Keeps credentials unencrypted in memory.
#[derive(Default)]
struct Drawer(Mutex<HashMap<String, Vec<u8>>>);

#[async_trait]
impl TokenStore for Drawer {
    async fn open(&self, address: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.0.lock().unwrap().get(address).cloned())
    }

    async fn keep(&self, address: &str, secret: &[u8]) -> Result<(), String> {
        self.0.lock().unwrap().insert(address.to_owned(), secret.to_vec());
        Ok(())
    }

    async fn forget(&self, address: &str) -> Result<(), String> {
        self.0.lock().unwrap().remove(address);
        Ok(())
    }

    async fn lock(&self) -> Result<Box<dyn Send>, String> {
        Ok(Box::new(()))
    }
}

/// A browser whose user agrees to everything.
struct Agreeing;

#[async_trait]
impl LoginBrowser for Agreeing {
    async fn show(&self, _server: &str, page: &str) -> Result<(), String> {
        let page = page.to_owned();
        tokio::spawn(async move { FakeLogin::visit(&page).await });
        Ok(())
    }
}

fn spec(fake: &FakeLogin) -> ServerSpec {
    ServerSpec {
        name: "fake".to_owned(),
        reach: HostTransport::Http { url: fake.url(), headers: Default::default() },
        oauth: OAuthSpec::default(),
    }
}

/// A token provider of another process on the same token store.
fn process(fake: &FakeLogin, drawer: &Arc<Drawer>, attended: bool) -> Arc<OAuthTokenProvider> {
    let browser = attended.then(|| Arc::new(Agreeing) as Arc<dyn LoginBrowser>);
    Arc::new(
        OAuthTokenProvider::new(&spec(fake), Arc::clone(drawer) as Arc<dyn TokenStore>, browser)
            .unwrap(),
    )
}

async fn whoami(fake: &FakeLogin, oauth: &Arc<OAuthTokenProvider>) -> Result<String, ClientError> {
    let introduction = ClientOptions {
        name: "test".to_owned(),
        version: "1".to_owned(),
        elicitation: false,
        sampling: false,
        authority: Some(Arc::clone(oauth) as Arc<dyn TokenProvider>),
        protocol: None,
        addresses: Vec::new(),
    };
    let server = ServerConnection::connect(&spec(fake), &introduction, "t").await?;
    let said = server.send_request("tools/call", serde_json::json!({ "name": "whoami" })).await?;
    Ok(said["content"][0]["text"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_server_that_asks_is_answered_and_another_process_goes_on_with_the_login() {
    let fake = FakeLogin::start().await;
    let drawer = Arc::default();
    assert_eq!(whoami(&fake, &process(&fake, &drawer, true)).await.unwrap(), "hello, you");
    assert_eq!(whoami(&fake, &process(&fake, &drawer, false)).await.unwrap(), "hello, you");
    let book = fake.book();
    assert_eq!(book.asked, ["register", "authorize", "authorization_code"]);
    assert_eq!(book.scopes, ["basic"], "what the challenge names");
    assert_eq!(book.faults, Vec::<String>::new());
}

#[tokio::test]
async fn without_anybody_to_ask_the_next_step_is_told() {
    let fake = FakeLogin::start().await;
    let error = whoami(&fake, &process(&fake, &Arc::default(), false)).await.unwrap_err();
    assert_eq!(error.to_string(), "wants you to log in: `shikiri host login fake`");
    assert_eq!(fake.book().asked, Vec::<String>::new(), "no client was registered needlessly");
}

#[tokio::test]
async fn a_token_that_is_about_to_run_out_is_refreshed_before_it_is_sent() {
    let fake = FakeLogin::start().await;
    fake.book().lifetime = 1;
    let drawer = Arc::default();
    process(&fake, &drawer, true).log_in().await.unwrap();
    fake.book().lifetime = 3_600;
    // No browser, and the registration's secret is only known from the token store.
    assert_eq!(whoami(&fake, &process(&fake, &drawer, false)).await.unwrap(), "hello, you");
    let asked = fake.book().asked.clone();
    assert_eq!(asked, ["register", "authorize", "authorization_code", "refresh_token"]);
}

#[tokio::test]
async fn a_revoked_token_is_refreshed_and_if_that_is_revoked_too_one_logs_in_again() {
    let fake = FakeLogin::start().await;
    let drawer = Arc::default();
    process(&fake, &drawer, true).log_in().await.unwrap();
    fake.book().revoke_access();
    assert_eq!(whoami(&fake, &process(&fake, &drawer, false)).await.unwrap(), "hello, you");
    fake.book().revoke_access();
    fake.book().revoke_refresh();
    let alone = whoami(&fake, &process(&fake, &drawer, false)).await.unwrap_err();
    assert!(alone.to_string().contains("`shikiri host login fake`"), "{alone}");
    assert_eq!(whoami(&fake, &process(&fake, &drawer, true)).await.unwrap(), "hello, you");
}

#[tokio::test]
async fn more_is_asked_for_with_all_that_was_asked_before_and_not_twice() {
    let fake = FakeLogin::start().await;
    let drawer = Arc::default();
    let oauth = process(&fake, &drawer, true);
    oauth.log_in().await.unwrap();
    fake.book().wider = Some("write".to_owned());
    assert_eq!(whoami(&fake, &oauth).await.unwrap(), "hello, you");
    assert_eq!(fake.book().scopes, ["basic", "basic write"]);
    // The server got the scopes that it wants, and asks for them again.
    fake.book().narrow();
    let error = whoami(&fake, &oauth).await.unwrap_err();
    assert!(error.to_string().contains("(basic write)"), "{error}");
    assert_eq!(fake.book().scopes.len(), 2, "the person was not asked again");
}

#[tokio::test]
async fn what_one_issuer_gave_is_never_shown_to_another() {
    let (fake, other) = (FakeLogin::start().await, FakeLogin::start().await);
    let drawer = Arc::default();
    process(&fake, &drawer, true).log_in().await.unwrap();
    fake.book().issuer = Some(other.issuer());
    fake.book().revoke_access();
    let _ = whoami(&fake, &process(&fake, &drawer, true)).await;
    let ours = fake.book().clients.clone();
    let theirs = other.book();
    assert_eq!(theirs.asked, ["register", "authorize", "authorization_code"]);
    assert!(!ours.is_empty() && theirs.clients.is_disjoint(&ours), "{ours:?}");
}

#[tokio::test]
async fn a_registration_by_hand_is_not_taken_to_another_issuer() {
    let (fake, other) = (FakeLogin::start().await, FakeLogin::start().await);
    let drawer = Arc::default();
    process(&fake, &drawer, true).log_in().await.unwrap();
    fake.book().issuer = Some(other.issuer());
    fake.book().revoke_access();
    let mut spec = spec(&fake);
    spec.oauth.client_id = Some("by-hand".to_owned());
    let token_store = Arc::clone(&drawer) as Arc<dyn TokenStore>;
    let oauth =
        Arc::new(OAuthTokenProvider::new(&spec, token_store, Some(Arc::new(Agreeing))).unwrap());
    let error = whoami(&fake, &oauth).await.unwrap_err().to_string();
    assert!(error.contains("another authorization server"), "{error}");
    assert_eq!(other.book().asked, Vec::<String>::new());
}

#[tokio::test]
async fn an_answer_from_another_issuer_or_to_another_question_gets_no_code() {
    for (iss, state, words) in [
        (Some("https://elsewhere.example"), None, "calls itself https://elsewhere.example"),
        (Some(""), None, "does not say that it is"),
        (None, Some("forged"), "state is wrong"),
    ] {
        let fake = FakeLogin::start().await;
        fake.book().told_issuer = iss.map(str::to_owned);
        fake.book().told_state = state.map(str::to_owned);
        let drawer: Arc<Drawer> = Arc::default();
        let error = process(&fake, &drawer, true).log_in().await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(fake.book().asked, ["register", "authorize"], "no code was sent");
        assert!(drawer.0.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_server_that_refuses_the_newest_token_is_not_asked_for_ever() {
    let fake = FakeLogin::start().await;
    fake.book().refuses_all = true;
    let error = whoami(&fake, &process(&fake, &Arc::default(), true)).await.unwrap_err();
    assert!(error.to_string().contains("has just given us"), "{error}");
    assert_eq!(fake.book().scopes.len(), 1);
}

#[tokio::test]
async fn two_requests_that_are_refused_at_once_ask_one_person_once() {
    let fake = FakeLogin::start().await;
    let oauth = process(&fake, &Arc::default(), true);
    let (one, two) = tokio::join!(whoami(&fake, &oauth), whoami(&fake, &oauth));
    assert_eq!((one.unwrap().as_str(), two.unwrap().as_str()), ("hello, you", "hello, you"));
    assert_eq!(fake.book().scopes, ["basic"]);
}

/// Records every log line, at any level.
#[derive(Clone, Default)]
struct Scribe(Arc<Mutex<String>>);

impl Visit for Scribe {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        *self.0.lock().unwrap() += &format!("{value:?}\n");
    }
}

impl tracing::Subscriber for Scribe {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn no_log_line_holds_a_code_or_a_token() {
    let fake = FakeLogin::start().await;
    let drawer = Arc::default();
    let scribe = Scribe::default();
    let written = Arc::clone(&scribe.0);
    let work = async {
        tracing::trace!("the scribe writes");
        whoami(&fake, &process(&fake, &drawer, true)).await.unwrap();
        fake.book().revoke_access();
        whoami(&fake, &process(&fake, &drawer, false)).await.unwrap();
    };
    Box::pin(work).with_subscriber(scribe).await;
    let written = written.lock().unwrap();
    assert!(written.contains("the scribe writes"));
    let secrets = fake.book().secrets();
    let told: Vec<_> = secrets.iter().filter(|secret| written.contains(*secret)).collect();
    assert!(told.is_empty() && secrets.len() == 6, "{told:?} of {secrets:?}");
}
