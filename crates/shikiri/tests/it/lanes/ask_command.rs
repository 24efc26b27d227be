//! `shikiri ask`: the answer alone on stdout, without a server beside it.

use serde_json::Value;
use shikiri_testkit::Cli;

use super::{cli, history, on_postgresql, on_sqlite};

fn story(cli: &Cli) {
    let asked = cli.run(&["ask", "chatgpt", "What is tea?"]).done();
    let first = asked.stdout.lines().next().unwrap();
    assert_eq!(
        first,
        "This is the offline page driver: no browser was used and chatgpt was not asked."
    );
    assert!(asked.stdout.ends_with("question: What is tea?\n"), "{}", asked.stdout);
    assert!(asked.stderr.contains("SHIKIRI_PAGES is offline"), "{}", asked.stderr);
    assert!(asked.stderr.contains("ask chatgpt"), "no progress: {}", asked.stderr);

    // The same caller goes on in its chat.
    let again = cli.run(&["ask", "chatgpt", "And coffee?", "--json"]).done().json();
    let chat = |answer: &str| answer.lines().find(|l| l.starts_with("chat: ")).map(str::to_owned);
    assert_eq!(chat(again["answer"].as_str().unwrap()), chat(&asked.stdout));
    assert_eq!((&again["provider"], &again["untrusted"]), (&"chatgpt".into(), &true.into()));

    let both = cli.run(&["ask", "both", "Which?"]).done().stdout;
    assert!(both.contains("== chatgpt\n") && both.contains("== gemini\n"), "{both}");
    let asked = history(cli, &[]);
    let questions: Vec<&Value> = asked.iter().map(|line| &line["question"]).collect();
    assert_eq!(questions, ["Which?", "Which?", "And coffee?", "What is tea?"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ask_prints_the_answer_alone() {
    on_sqlite(|cli, _| story(cli));
    on_postgresql("ask", |cli, _| story(cli)).await;
}

#[test]
fn ask_reads_the_question_from_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = cli(folder.path()).command(&["ask", "gemini", "-"]);
    std::fs::write(folder.path().join("question.txt"), "From a file\nof two lines").unwrap();
    command.stdin(std::fs::File::open(folder.path().join("question.txt")).unwrap());
    let ended = command.output().unwrap();
    let told = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success() && told.contains("From a file\nof two lines"), "{told}");
}

#[test]
fn ask_passes_errors_on_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    cli.run(&["ask", "chatgtp", "hi"]).refused(2, &["'chatgtp'", "chatgpt, gemini, both"]);
    cli.run(&["ask", "chatgpt", " "]).refused(2, &["question: must not be empty"]);
    let cases = [
        ("login", 3, ["LOGIN_REQUIRED", "`shikiri browser login`"]),
        ("browser", 5, ["BROWSER_UNAVAILABLE", "`shikiri browser check`"]),
        ("changed", 1, ["PAGE_CHANGED", "`shikiri browser check`"]),
        ("timeout", 1, ["ANSWER_TIMEOUT", "`shikiri lanes list`"]),
    ];
    for (error, code, words) in cases {
        let ended = cli.run(&["ask", "chatgpt", &format!("hi\n#offline error={error}")]);
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{}", ended.stderr);
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(words.iter().all(|word| last.contains(word)), "{last}");
    }
}

#[test]
fn ask_is_cancelled_by_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let mut asking = cli.start(&["ask", "chatgpt", "hi\n#offline hang=1"]);
    let patience = std::time::Duration::from_secs(60);
    assert!(asking.find(patience, |line| line.contains("ask chatgpt").then_some(())).is_some());
    asking.signal(rustix::process::Signal::INT);
    assert_eq!(asking.wait(patience), 130, "{}", asking.output());
    let runs = cli.run(&["runs", "list", "--json"]).done().json();
    assert_eq!(runs["items"][0]["status"], "cancelled");
}
