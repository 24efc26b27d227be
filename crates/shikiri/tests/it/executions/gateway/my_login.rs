//! `shikiri run --my-login`: a person's own Claude login is lent to one run. The gateway adds it to
//! requests; the run does not hold it, and nothing of it stays.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;
use shikiri_testkit::{Cli, FakeModel, Reply, claude_programs, script};
use tempfile::TempDir;

use super::{SHELL, prompt, walk};
use crate::PROGRAM;

const ACCESS: &str = "sk-ant-oat01-canary-access";
const REFRESH: &str = "sk-ant-ort01-canary-refresh";
/// The year 2100.
const LATER: i64 = 4_102_444_800_000;

/// A person with a login and a project.
struct Person {
    folder: TempDir,
}

impl Person {
    fn new(expires_at: i64) -> Self {
        let person = Self { folder: TempDir::new().unwrap() };
        std::fs::create_dir(person.folder.path().join("project")).unwrap();
        let settings = person.folder.path().join("home/.claude");
        std::fs::create_dir_all(&settings).unwrap();
        let login = json!({ "claudeAiOauth": {
            "accessToken": ACCESS, "refreshToken": REFRESH, "expiresAt": expires_at,
            "scopes": ["user:inference", "user:profile"], "subscriptionType": "max",
        }});
        std::fs::write(settings.join(".credentials.json"), login.to_string()).unwrap();
        person
    }

    fn project(&self) -> std::path::PathBuf {
        self.folder.path().join("project")
    }

    /// The command line with this program as Claude Code, and the model `mine` that runs on it.
    fn cli(&self, claude: &Path, api: &str) -> Cli {
        let cli = Cli::new(PROGRAM, self.project())
            .env("HOME", self.folder.path().join("home"))
            .env("SHIKIRI_CLAUDE_BIN", claude)
            .env("ANTHROPIC_BASE_URL", api)
            .env("ANTHROPIC_API_KEY", "sk-not-to-be-used")
            .env("CLAUDE_CODE_MAX_RETRIES", "1");
        cli.run(&[
            "models",
            "create",
            "mine",
            "--engine",
            "claude-code",
            "--model-name",
            "claude-sonnet-4-5",
        ])
        .done();
        cli
    }

    fn shell(&self, api: &str) -> Cli {
        let claude = self.folder.path().join("claude");
        script(&claude, SHELL);
        self.cli(&claude, api)
    }

    #[track_caller]
    fn nothing_is_kept(&self) {
        let mut files = Vec::new();
        walk(&self.project(), &mut files);
        assert!(!files.is_empty());
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            for canary in [ACCESS, REFRESH] {
                let turned: String = canary.chars().rev().collect();
                for text in [canary, &turned] {
                    let holds = bytes.windows(text.len()).any(|part| part == text.as_bytes());
                    assert!(!holds, "{text} is in {}", file.display());
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_calls_the_api_with_a_lent_login() {
    for program in claude_programs() {
        let model = FakeModel::start().await;
        model.script("go", [Reply::text("到着")]);
        let person = Person::new(LATER);
        let cli = person.cli(&program, &model.url());
        let ended = tokio::task::block_in_place(|| cli.run(&["run", "--my-login", "go"])).done();
        assert_eq!(ended.stdout.trim(), "到着", "{}: {}", program.display(), ended.stderr);
        let asked = model.messages();
        assert!(!asked.is_empty());
        for request in &asked {
            let bearer = format!("Bearer {ACCESS}");
            assert_eq!(request.header("authorization"), Some(bearer.as_str()));
            assert_eq!(request.header("x-api-key"), None);
            // Without it the API does not take a login.
            let beta = request.header("anthropic-beta").unwrap_or_default();
            assert!(beta.contains("oauth-2025-04-20"), "{beta}");
        }
        person.nothing_is_kept();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_a_run_cannot_read_a_lent_login() {
    let model = FakeModel::start().await;
    let person = Person::new(LATER);
    let cli = person.shell(&model.url());
    let file = person.folder.path().join("home/.claude/.credentials.json");
    let code = format!(
        "env; cat {} 2>&1; find / -name .credentials.json 2>/dev/null; env | rev > $HOME/turned",
        file.display()
    );
    let run = ["run", "--my-login", &prompt(&code)];
    let ended = tokio::task::block_in_place(|| cli.run(&run)).done();
    let said = String::from_utf8(BASE64.decode(ended.stdout.trim()).unwrap()).unwrap();
    assert!(said.contains("CLAUDE_CODE_OAUTH_TOKEN="), "{said}");
    assert!(!said.contains("ANTHROPIC_API_KEY="), "{said}");
    assert!(!said.contains("canary") && !said.contains("sk-not-to-be-used"), "{said}");
    person.nothing_is_kept();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_lent_only_where_it_is_safe() {
    let person = Person::new(LATER);
    let cli = person.shell("http://127.0.0.1:9");
    let run = |arguments: &[&str]| {
        let all = [&["run", "--my-login", "x"], arguments].concat();
        tokio::task::block_in_place(|| cli.run(&all))
    };
    cli.run(&["tenants", "create", "guest"]).done();
    run(&["--tenant", "guest"]).refused(3, &["--my-login", "tenant local"]);
    run(&["--model", "offline"]).refused(2, &["offline", "Claude Code alone"]);
    run(&["--engine", "offline"]).refused(2, &["--engine", "Claude Code alone"]);
    assert_eq!(run(&["--server", "http://127.0.0.1:9"]).code, 2);
    // A model with an address of its own could send it there.
    let elsewhere = ["--env", "ANTHROPIC_BASE_URL=http://127.0.0.1:9"];
    let create = [
        &["models", "create", "other", "--engine", "claude-code", "--model-name", "m"][..],
        &elsewhere,
    ];
    cli.run(&create.concat()).done();
    let refused = run(&["--model", "other"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("ANTHROPIC_BASE_URL"), "{}", refused.stderr);

    let late = Person::new(1_000);
    let cli = late.shell("http://127.0.0.1:9");
    cli.run(&["run", "--my-login", "x"]).refused(3, &["expired", "`claude`"]);
    std::fs::remove_dir_all(late.folder.path().join("home/.claude")).unwrap();
    cli.run(&["run", "--my-login", "x"]).refused(3, &["log in with `claude`", "setup-token"]);
    let cli = cli.env("CLAUDE_CODE_OAUTH_TOKEN", ACCESS);
    let ended = cli.run(&["run", "--my-login", &prompt("echo $CLAUDE_CODE_OAUTH_TOKEN")]).done();
    let said = BASE64.decode(ended.stdout.trim()).unwrap();
    assert!(!String::from_utf8(said).unwrap().contains(ACCESS));
    late.nothing_is_kept();
}
