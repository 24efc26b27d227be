//! How long credentials are kept, and what is told, and what is not.

use std::sync::{Arc, Mutex};

use super::*;

/// A machine whose container gives these, one after the other.
async fn in_a_container(replies: Vec<Reply>) -> (Machine, Server) {
    let endpoint = Server::start(replies).await;
    let machine = Machine::new("").await;
    let machine = machine.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &endpoint.base);
    (machine, endpoint)
}

#[tokio::test]
async fn keys_are_kept_and_fetched_again_before_they_end() {
    let replies =
        vec![endpoint_reply("A1", later(HOUR_MS)), endpoint_reply("A2", later(2 * HOUR_MS))];
    let (machine, endpoint) = in_a_container(replies).await;
    for (after_minutes, id, fetches) in
        [(0, "A1", 1), (54, "A1", 1), (56, "A2", 2), (57, "A2", 2), (114, "A2", 2)]
    {
        let at = later(after_minutes * 60_000);
        assert_eq!(machine.key_id_at(at).await.unwrap(), id, "{after_minutes}");
        assert_eq!(endpoint.arrived().len(), fetches, "{after_minutes}");
    }
}

#[tokio::test]
async fn requests_at_once_fetch_once() {
    let (machine, endpoint) = in_a_container(vec![endpoint_reply(ID, later(HOUR_MS))]).await;
    let asked = futures_util::future::join_all((0..20).map(|_| machine.ask())).await;
    assert!(asked.iter().all(Result::is_ok), "{asked:?}");
    assert_eq!((endpoint.arrived().len(), machine.bedrock.arrived().len()), (1, 20));
}

#[tokio::test]
async fn requests_at_once_fail_once() {
    let (machine, endpoint) =
        in_a_container(vec![Reply::Whole("403 Forbidden", String::new())]).await;
    let asked = futures_util::future::join_all((0..20).map(|_| machine.ask())).await;
    assert!(asked.iter().all(Result::is_err), "{asked:?}");
    assert_eq!(endpoint.arrived().len(), 1);
}

#[tokio::test]
async fn a_refresh_that_fails_leaves_good_keys_in_use() {
    let failing = Reply::Whole("403 Forbidden", String::new());
    let replies = vec![endpoint_reply("A1", later(HOUR_MS)), failing];
    let (machine, endpoint) = in_a_container(replies).await;
    assert_eq!(machine.key_id_at(now()).await.unwrap(), "A1");
    for (after_minutes, fetches) in [(56, 2), (56, 2), (58, 3)] {
        let at = later(after_minutes * 60_000);
        assert_eq!(machine.key_id_at(at).await.unwrap(), "A1");
        assert_eq!(endpoint.arrived().len(), fetches, "{after_minutes}");
    }
    machine.key_id_at(later(HOUR_MS + 1_000)).await.unwrap_err();
}

#[tokio::test]
async fn an_sso_login_that_has_ended_says_what_to_run() {
    let refusal = json!({ "message": "Session token not found or invalid" }).to_string();
    let head = "401 Unauthorized\r\nx-amzn-ErrorType: UnauthorizedException";
    let portal = Server::start(vec![Reply::Whole(head, refusal)]).await;
    for config in [SSO_SESSION, SSO_LEGACY] {
        let machine = logged_in(config, &portal, later(-HOUR_MS)).await;
        let text = machine.refusal().await;
        assert!(text.contains("run `aws sso login --profile default`"), "{text}");
        assert_eq!(machine.bedrock.arrived().len(), 0);
    }
    let never = Machine::new(SSO_SESSION).await;
    let text = never.refusal().await;
    assert!(text.contains("run `aws sso login --profile default`"), "{text}");
}

#[tokio::test]
async fn without_credentials_it_is_told_soon_what_was_tried() {
    // An instance whose metadata never answer.
    let metadata = Server::start(vec![Reply::Stuck("")]).await;
    let machine = Machine::new("").await.set("AWS_EC2_METADATA_DISABLED", "false");
    let machine = machine.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.base);
    let start = Instant::now();
    let text = machine.refusal().await;
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    for tried in
        ["Environment", "Profile", "WebIdentityToken", "EcsContainer", "Ec2InstanceMetadata"]
    {
        assert!(text.contains(tried), "{text}");
    }
    assert!(text.contains("set AWS_ACCESS_KEY_ID"), "{text}");
    assert_eq!(metadata.arrived().len(), 1, "one try");
    assert_eq!(machine.bedrock.arrived().len(), 0);
}

#[tokio::test]
async fn reasons_hold_no_secrets() {
    let complaint = format!(
        "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no {CANARY}-key and \
         {CANARY}-jwt</Message></Error></ErrorResponse>"
    );
    let head = "403 Forbidden\r\nContent-Type: text/xml";
    let sts = Server::start(vec![Reply::Whole(head, complaint)]).await;
    let role = format!(
        "[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n[profile base]\n\
         aws_access_key_id = AKIABASE\naws_secret_access_key = {CANARY}-key\n\
         aws_session_token = {CANARY}-jwt\n"
    );
    let machine = Machine::new(&role).await.set("AWS_ENDPOINT_URL_STS", &sts.base);
    let text = machine.refusal().await;
    assert!(text.contains("AccessDenied") && text.contains("no [hidden] and [hidden]"), "{text}");

    let machine = Machine::new("").await.set("AWS_ENDPOINT_URL_STS", &sts.base);
    let file = machine.path("identity");
    write(Path::new(&file), &format!("{CANARY}-jwt"));
    let machine = machine.set("AWS_WEB_IDENTITY_TOKEN_FILE", &file);
    let machine = machine.set("AWS_ROLE_ARN", "arn:aws:iam::1:role/w");
    let machine = machine.set("AWS_CONTAINER_AUTHORIZATION_TOKEN", &format!("{CANARY}-key"));
    let text = machine.refusal().await;
    assert!(text.contains("no [hidden] and [hidden]"), "{text}");

    let process = format!("[default]\ncredential_process = echo {CANARY} >&2; false\n");
    let text = Machine::new(&process).await.refusal().await;
    assert!(text.contains("external process exited"), "{text}");
    let broken = format!("[default]\n{CANARY}\n");
    Machine::new(&broken).await.refusal().await;
}

#[tokio::test]
async fn fetched_keys_are_hidden_in_what_bedrock_says() {
    let (mut machine, _endpoint) = in_a_container(vec![endpoint_reply(ID, later(HOUR_MS))]).await;
    let body = json!({ "message": format!("your token is {}", token()) }).to_string();
    machine.bedrock = Server::start(vec![Reply::Whole("403 Forbidden", body)]).await;
    let base = machine.bedrock.base.clone();
    let machine = machine.set("ANTHROPIC_BEDROCK_BASE_URL", &base);
    let refused = machine.ask().await.unwrap_err().to_string();
    assert!(refused.ends_with("your token is [hidden]"), "{refused}");
}

/// Writes into a text that the test reads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn fetching_writes_no_secret_into_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _heard = tracing::subscriber::set_default(subscriber);
    let (machine, _endpoint) = in_a_container(vec![endpoint_reply(ID, later(HOUR_MS))]).await;
    let machine = machine.set("AWS_CONTAINER_AUTHORIZATION_TOKEN", &format!("pod/{CANARY}"));
    tracing::trace!("every detail is written");
    machine.ask().await.unwrap();
    assert!(log.text().contains("every detail is written"));
    assert!(!log.text().contains(CANARY), "{}", log.text());
}
