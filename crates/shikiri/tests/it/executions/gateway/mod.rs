//! A run has the address and the token of its own gateway, and no credential of the operator's. The
//! program in the place of Claude Code runs its prompt in bash, as a model could with the Bash tool.

mod egress;
mod my_login;
mod networks;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use shikiri_testkit::{FakeModel, Reply, Rng, TestApp, claude_programs, script, until};
use tempfile::TempDir;

use super::kit::{Talk, terminal};
use crate::PROGRAM;

/// Does what the prompt says and answers with what that wrote, in base64: no filter for secrets
/// knows them in that form.
const SHELL: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo '2.1.325 (Claude Code)'; exit; fi
while read -r line; do
  case "$line" in
  *initialize*)
    echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'
    ;;
  *)
    code=$(printf '%s' "$line" | grep -o 'RUN:[A-Za-z0-9+/=]*' | head -n 1 | cut -c5- | base64 -d)
    said=$(bash -c "$code" 2>&1 | base64 -w0)
    echo '{"type":"system","subtype":"init","session_id":"s","model":"m"}'
    echo '{"type":"assistant","message":{"id":"1","model":"m","content":[{"type":"text","text":"'$said'"}]}}'
    echo '{"type":"result","is_error":false,"num_turns":1,"session_id":"s","result":"'$said'"}'
    ;;
  esac
done
"#;

/// A server whose model is a shell.
pub(super) struct World {
    pub(super) app: TestApp,
    _folder: TempDir,
    pub(super) talk: Talk,
}

impl World {
    pub(super) async fn start(env: &[(&str, &str)], model: Value) -> Self {
        let folder = TempDir::new().unwrap();
        let claude = folder.path().join("claude");
        script(&claude, SHELL);
        let mut app = TestApp::new(PROGRAM).env("SHIKIRI_CLAUDE_BIN", claude.display());
        for (name, value) in env {
            app = app.env(name, value);
        }
        let app = app.start().await;
        let mut record = json!({ "id": "shell", "engine": "claude-code", "model_name": "m" });
        record.as_object_mut().unwrap().extend(model.as_object().unwrap().clone());
        app.client().post("/v1/models", &record).await.expect(201);
        let patch = json!({ "model_id": "shell" });
        app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        let talk = Talk::start(&app.local()).await;
        Self { app, _folder: folder, talk }
    }

    /// Runs this in a run, and gives what it wrote.
    pub(super) async fn bash(&self, code: &str) -> String {
        let told = self.talk.say(&prompt(code)).await;
        let end = terminal(&told);
        let result = end.data["result"].as_str().unwrap_or_else(|| panic!("{end:?}"));
        String::from_utf8(BASE64.decode(result).unwrap()).unwrap()
    }
}

fn prompt(code: &str) -> String {
    format!("RUN:{}", BASE64.encode(code))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operator_credential_enters_a_run() {
    let mut rng = Rng::seeded("gateway");
    let mut canary = |name: &str| format!("{name}-{:016x}", rng.next());
    let names = [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ];
    let mut given: Vec<(&str, String)> = names.map(|name| (name, canary("server"))).to_vec();
    let mut canaries: Vec<String> = given.iter().map(|(_, value)| value.clone()).collect();
    let (header, password) = (canary("header"), canary("password"));
    let (token, licence) = (canary("model-token"), canary("model-licence"));
    given.extend([
        ("ANTHROPIC_CUSTOM_HEADERS", format!("X-Team: a\nX-Gateway-Auth: Bearer {header}")),
        ("HTTPS_PROXY", format!("http://operator:{password}@127.0.0.1:9")),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9".to_owned()),
        ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "little".to_owned()),
        ("AWS_REGION", "eu-west-3".to_owned()),
    ]);
    let env: Vec<(&str, &str)> =
        given.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let model = json!({
        "env": {
            "VENDOR_TOKEN": token, "LICENCE": licence, "COPY": canaries[0], "GREETING": "hello",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096",
        },
        "secret_env": ["LICENCE"],
    });
    canaries.extend([header, password, token, licence]);
    let world = World::start(&env, model).await;
    let seen = world.bash("env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'").await;
    for canary in &canaries {
        assert!(!seen.contains(canary.as_str()), "{canary} is in the run:\n{seen}");
    }
    for plain in [
        "GREETING=hello",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL=little",
        "AWS_REGION=eu-west-3",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS=4096",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:",
        "NO_PROXY=127.0.0.1,localhost,::1",
    ] {
        assert!(seen.contains(plain), "{plain} is missing:\n{seen}");
    }
    // Turned round, as the filter of what is told would not know them.
    world.bash("printenv ANTHROPIC_API_KEY | rev; env | rev > $HOME/turned").await;
    let mut files = Vec::new();
    walk(&world.app.data_folder(), &mut files);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        for canary in &canaries {
            let turned: String = canary.chars().rev().collect();
            let holds = bytes.windows(turned.len()).any(|window| window == turned.as_bytes());
            assert!(!holds, "{canary} is in {}, turned round", file.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_run_opens_its_own_gateway_until_the_run_ends() {
    let model = FakeModel::start().await;
    let url = model.url();
    let env = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", "sk-operator")];
    let world = World::start(&env, json!({})).await;
    let waiting = prompt(
        "echo \"$ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY\" > $HOME/access; \
         until [ -e $HOME/enough ]; do sleep 0.1; done",
    );
    let first = world.talk.begin(&waiting).await;
    let home = world.app.data_folder().join("engines").join(&world.talk.id);
    until("the first run", async || {
        std::fs::read_to_string(home.join("access")).is_ok_and(|text| text.contains('\n'))
    })
    .await;
    let access = std::fs::read_to_string(home.join("access")).unwrap();
    let (base, token) = access.trim().split_once(' ').unwrap();

    let other = World { talk: Talk::start(&world.app.local()).await, ..world };
    let ask = |base: &str, token: &str, path: &str| {
        format!(
            "curl -s -o /dev/null -w '%{{http_code}} ' --path-as-is -H \"x-api-key: {token}\" \
             -H 'content-type: application/json' -d '{{\"model\":\"m\",\"messages\":[]}}' \
             {base}{path};"
        )
    };
    let (own, own_token) = ("$ANTHROPIC_BASE_URL", "$ANTHROPIC_API_KEY");
    let code = [
        ask(own, own_token, "/v1/messages"),
        ask(own, token, "/v1/messages"),
        ask(own, "sk-operator", "/v1/messages"),
        ask(base, own_token, "/v1/messages"),
        ask(own, own_token, "/v1/../admin"),
        ask(own, own_token, "/v1/%2e%2e/admin"),
        ask(own, own_token, "/other"),
    ];
    let codes = other.bash(&code.concat()).await;
    // In a network of its own, a run cannot even connect to another run's gateway.
    let codes = codes.trim().replace(" 000 ", " 401 ");
    assert_eq!(codes, "200 401 401 401 404 404 404");
    let asked = model.requests();
    let paths: Vec<_> = asked.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths[0], "/v1/messages", "{paths:?}");
    assert!(paths.iter().all(|path| *path == "/v1/messages"), "{paths:?}");
    assert!(asked.iter().all(|request| request.header("x-api-key") == Some("sk-operator")));

    std::fs::write(home.join("enough"), "").unwrap();
    other.talk.follow(&first, 0).await;
    let (_, place) = base.split_once("//").unwrap();
    let place = place.split('/').next().unwrap();
    let closed = tokio::net::TcpStream::connect(place).await;
    assert!(closed.is_err(), "nothing listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_reaches_bedrock_with_our_signature() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        model.require_keys("AKIATEST", "aws-test-secret");
        model.script("go", [Reply::text("到着")]);
        // Newer versions first try models of their own with a single token, which they count
        // nowhere.
        model.answer(|request| {
            let is_check = request.body["max_tokens"] == 1;
            is_check.then(|| Reply::text(".").usage(free()))
        });
        let app = TestApp::new(PROGRAM)
            .env("SHIKIRI_CLAUDE_BIN", program.display())
            .env("ANTHROPIC_BEDROCK_BASE_URL", model.url())
            .env("AWS_ACCESS_KEY_ID", "AKIATEST")
            .env("AWS_SECRET_ACCESS_KEY", "aws-test-secret")
            .env("CLAUDE_CODE_MAX_RETRIES", 1)
            .start()
            .await;
        let name = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
        let record = json!({
            "id": "aws", "engine": "claude-code", "model_name": name, "region": "us-west-2",
        });
        app.client().post("/v1/models", &record).await.expect(201);
        let patch = json!({ "model_id": "aws" });
        app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        let talk = Talk::start(&app.local()).await;
        let told = talk.say("go").await;
        let end = terminal(&told);
        assert_eq!(end.data["result"], "到着", "{}: {told:#?}", program.display());
        let id = end.data["execution_id"].as_str().unwrap();
        let usage = &talk.execution(id, "").await["usage"];
        let spent: u64 = model.spent().iter().map(|spent| spent.usage.output_tokens).sum();
        assert_eq!(usage["output_tokens"], spent, "{usage}");
        let request = &model.messages()[0];
        let signed = request.header("authorization").unwrap();
        assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=AKIATEST/"), "{signed}");
    }
}

fn free() -> shikiri_testkit::Usage {
    shikiri_testkit::Usage {
        input_tokens: 0,
        output_tokens: 0,
        cache_read_input_tokens: 0,
        cache_creation_input_tokens: 0,
        cache_creation_1h_input_tokens: 0,
    }
}

fn walk(folder: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => walk(&entry.path(), files),
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}
