//! AWS credentials, with servers on the loopback in the place of AWS: where they come from
//! (`sources`), how long they are kept, and what is told when there are none (`keeping`).

mod keeping;
mod sources;

use std::path::Path;

use shikiri_model::time::Timestamp;
use tempfile::TempDir;

use super::super::messages_client::now;
use super::super::model_provider::ModelCredentials;
use super::server::Arrived;
use super::*;

const ID: &str = "ASIAFETCHED";
/// SHA-1 of `corp`, the SSO session, and of its start URL.
const SESSION_FILE: &str = "ee0bfd2552fbd840c02cc48b6e823320543c450f";
const START_URL_FILE: &str = "f7c9b39d0b4c7a7d82c79307585f77e1c5e74378";
const HOUR_MS: i64 = 60 * 60 * 1_000;

/// An operator's machine: a home, variables, and a Bedrock.
struct Machine {
    home: TempDir,
    env: BTreeMap<String, String>,
    aws: AwsCredentialSources,
    bedrock: Server,
}

impl Machine {
    /// With `~/.aws/config`, and no role of an instance.
    async fn new(config: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        write(&home.path().join(".aws/config"), config);
        let bedrock = Server::start(vec![good()]).await;
        let env = env(&[
            ("AWS_REGION", "eu-central-1"),
            ("ANTHROPIC_BEDROCK_BASE_URL", &bedrock.base),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ]);
        let aws = AwsCredentialSources::at_home(Some(home.path().to_owned()));
        Self { home, env, aws, bedrock }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).to_str().unwrap().to_owned()
    }

    async fn provider(&self) -> Result<ModelProvider, ModelApiError> {
        ModelProvider::from_env(&model(EngineKind::Bedrock), &self.env, &self.aws).await
    }

    async fn ask(&self) -> Result<MessagesResponse, ModelApiError> {
        let client = MessagesClient::new(self.provider().await?, &self.env)?;
        let printed = format!("{client:?} {:?}", self.aws);
        assert!(!printed.contains(CANARY), "{printed}");
        client.send(&request(), LIMIT).await
    }

    /// The id of the keys at a time, without asking Bedrock.
    async fn key_id_at(&self, at: Timestamp) -> Result<String, ModelApiError> {
        match self.provider().await?.credentials() {
            ModelCredentials::Aws(source) => source.keys(at).await.map(|keys| keys.id),
            other => panic!("{other:?}"),
        }
    }

    /// Asks Bedrock, which must see these keys and this token.
    #[track_caller]
    fn assert_signed_by(&self, id: &str, token: Option<&str>) {
        let arrived = self.bedrock.one();
        let start = format!("AWS4-HMAC-SHA256 Credential={id}/");
        assert!(arrived.header("authorization").starts_with(&start), "{arrived:?}");
        assert_eq!(arrived.maybe("x-amz-security-token"), token);
    }

    async fn refusal(&self) -> String {
        let failure = self.ask().await.unwrap_err();
        let text = failure.to_string();
        assert!(matches!(failure, ModelApiError::NotConfigured(_)), "{text}");
        assert!(!text.contains(CANARY), "{text}");
        text
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn token() -> String {
    format!("token/{CANARY}")
}

fn later(by_ms: i64) -> Timestamp {
    Timestamp::from_millis(now().as_millis() + by_ms)
}

fn json_reply(body: &Value) -> Reply {
    Reply::Whole("200 OK\r\nContent-Type: application/json", body.to_string())
}

/// As containers and instances have it.
fn endpoint_reply(id: &str, expires: Timestamp) -> Reply {
    json_reply(&json!({
        "Code": "Success", "AccessKeyId": id, "SecretAccessKey": format!("secret/{CANARY}"),
        "Token": token(), "Expiration": expires.to_string(),
    }))
}

fn sts_reply(action: &str) -> Reply {
    let (token, expires) = (token(), later(HOUR_MS));
    let body = format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result>\
         <Credentials><AccessKeyId>{ID}</AccessKeyId><SecretAccessKey>secret/{CANARY}\
         </SecretAccessKey><SessionToken>{token}</SessionToken><Expiration>{expires}</Expiration>\
         </Credentials></{action}Result></{action}Response>"
    );
    Reply::Whole("200 OK\r\nContent-Type: text/xml", body)
}

fn form(arrived: &Arrived) -> String {
    String::from_utf8(arrived.body.clone()).unwrap()
}

/// A machine with an SSO login that lasts until `expires`.
async fn logged_in(config: &str, portal: &Server, expires: Timestamp) -> Machine {
    let machine = Machine::new(config).await.set("AWS_ENDPOINT_URL_SSO", &portal.base);
    let login = json!({
        "accessToken": format!("login/{CANARY}"), "expiresAt": expires.to_string(),
        "region": "eu-west-1", "startUrl": "https://corp.example/start",
    });
    for file in [SESSION_FILE, START_URL_FILE] {
        let file = machine.home.path().join(format!(".aws/sso/cache/{file}.json"));
        write(&file, &login.to_string());
    }
    machine
}

const SSO_SESSION: &str = "[default]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = r\n\
                           [sso-session corp]\nsso_region = eu-west-1\n\
                           sso_start_url = https://corp.example/start\n";
const SSO_LEGACY: &str = "[default]\nsso_start_url = https://corp.example/start\n\
                          sso_region = eu-west-1\nsso_account_id = 1\nsso_role_name = r\n";
