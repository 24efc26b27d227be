//! Questions and what comes of them, over the tools.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, StdioClient, TestApp, until_blocking};

use super::{
    answer, ask, call, cli, connection, history, on_postgresql, on_sqlite, process, refusal,
    server, servers, text,
};
use crate::PROGRAM;

/// Row 0.18: who asked what, with everything that is known of it.
#[tokio::test(flavor = "multi_thread")]
async fn every_question_is_written_down_with_who_asked_it() {
    for app in servers("who asked what", |app| app).await {
        one_question(&app).await;
    }
}

async fn one_question(app: &TestApp) {
    let mcp = connection(app, "claude-code").await;
    let asked = answer(&mcp.result("tools/call", call("ask_gemini_web", "誰が訊いた？")).await);
    let cli = app.cli();
    let line = &history(&cli, &["--provider", "gemini", "--agent", "claude-code"])[0];
    for (name, value) in [
        ("provider", json!("gemini")),
        ("question", json!("誰が訊いた？")),
        ("answer", asked["answer"].clone()),
        ("url", asked["url"].clone()),
        ("agent", json!("claude-code")),
        ("instance", asked["instance"].clone()),
        ("lane", asked["lane"].clone()),
        ("session", json!(mcp.session())),
        ("subagent", Value::Null),
        ("status", json!("answered")),
        ("sent", json!("yes")),
        ("project", json!(app.root().file_name().unwrap().to_str().unwrap())),
    ] {
        assert_eq!(line[name], value, "{name}");
    }
    let timings = line["timings"].as_object().unwrap();
    let names: Vec<&String> = timings.keys().collect();
    assert_eq!(
        names,
        ["connectMs", "inputMs", "sendMs", "totalMs", "waitInputMs", "waitResponseMs"]
    );
    let at = text(line, "ts");
    assert!(at.ends_with('Z') && at.len() == "2026-11-15T20:00:00.000Z".len(), "{at}");
    let run =
        app.client().get(&format!("/v1/tenants/local/runs/{}", text(line, "execution"))).await;
    assert_eq!(run.expect(200)["agent"], "ask_gemini_web");
    assert!(history(&cli, &["--agent", "absent"]).is_empty());
    assert!(history(&cli, &["--provider", "chatgpt"]).is_empty());

    let page = app.client().get("/v1/tenants/local/history?provider=gemini&limit=1").await;
    let page = page.expect(200);
    assert_eq!(page["items"][0]["question"], "誰が訊いた？");
    assert!(page["items"][0]["timings"]["total_ms"].is_u64());
}

/// Both at once, each in its own chat; one failing does not take the other along.
#[test]
fn both_providers_are_asked_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let mut client = process(&cli, "x");
    // Neither is ever answered: one after the other, the second would not be asked at all.
    let hanging = call("ask_chatgpt_gemini_web", "#offline hang=1");
    let hanging = client.request("tools/call", hanging);
    until_blocking("both are asked at once", || in_flight(&cli) == json!(["chatgpt", "gemini"]));
    cancel(&mut client, hanging);
    let both = |client: &mut StdioClient, question: &str| {
        client.result("tools/call", call("ask_chatgpt_gemini_web", question))
    };
    let first = answer(&both(&mut client, "?"));
    for provider in ["chatgpt", "gemini"] {
        let part = &first[provider];
        assert!(text(part, "answer").contains(&format!("{provider} was not asked")), "{part}");
    }
    assert_ne!(first["chatgpt"]["url"], first["gemini"]["url"]);
    let single = ask(&mut client, "?");
    assert_eq!(single["url"], first["chatgpt"]["url"]);
    assert_eq!(refusal(&both(&mut client, "#offline error=login")), "LOGIN_REQUIRED");
    let again = answer(&both(&mut client, "?"));
    assert_eq!(again["gemini"]["url"], first["gemini"]["url"]);
}

/// At which providers the first lane has a question.
fn in_flight(cli: &Cli) -> Value {
    cli.run(&["lanes", "list", "--json"]).done().json()["items"][0]["in_flight"].clone()
}

fn cancel(client: &mut StdioClient, id: i64) {
    let params = json!({ "requestId": id });
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
}

/// The page is not to be trusted: its text is marked, and nothing in it steers a terminal.
#[test]
fn answers_are_marked_and_cleaned() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = process(&cli(folder.path()), "x");
    let asked = ask(&mut client, "see \u{1b}[31mred\u{7} \u{202e}turned 日本語");
    assert_eq!(asked["untrusted"], true);
    assert!(text(&asked, "notice").contains("not to be trusted"));
    assert!(text(&asked, "answer").ends_with("see red turned 日本語"), "{asked}");
    let long = ask(&mut client, "#offline chars=300000");
    assert_eq!(text(&long, "answer").chars().count(), 300_000);
}

#[test]
fn bad_questions_are_refused_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let mut client = process(&cli, "x");
    let long = "あ".repeat(100_001);
    for arguments in [
        json!({ "question": "" }),
        json!({ "question": " \n" }),
        json!({ "question": long }),
        json!({ "question": 5 }),
        json!({}),
        json!({ "question": "?", "url": "https://chatgpt.com/c/1" }),
    ] {
        let params = json!({ "name": "ask_chatgpt_web", "arguments": arguments });
        assert_eq!(refusal(&client.result("tools/call", params)), "invalid_argument");
    }
    assert!(history(&cli, &[]).is_empty());
    let most = "あ".repeat(100_000);
    assert!(text(&ask(&mut client, &most), "answer").ends_with(&most));
    let surplus = json!({ "name": "lane_info", "arguments": { "x": 1 } });
    assert_eq!(refusal(&client.result("tools/call", surplus)), "invalid_argument");
}

/// Every way in which a page can fail has its code, says whether the question was sent, and leaves
/// the lane usable.
#[test]
fn every_failure_has_its_code_and_the_lane_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let mut client = process(&cli, "x");
    let first = ask(&mut client, "?");
    for (wish, code) in [
        ("login", "LOGIN_REQUIRED"),
        ("browser", "BROWSER_UNAVAILABLE"),
        ("changed", "PAGE_CHANGED"),
        ("timeout", "ANSWER_TIMEOUT"),
        ("broken", "BROWSER_FAILED"),
    ] {
        for (sent, known) in [("", "no"), (" sent=1", "yes")] {
            let question = format!("#offline error={wish}{sent}");
            let result = client.result("tools/call", call("ask_chatgpt_web", &question));
            assert_eq!(refusal(&result), code);
            let line = &history(&cli, &["--limit", "1"])[0];
            assert_eq!((&line["sent"], &line["error"]["code"]), (&json!(known), &json!(code)));
            assert_eq!(line["url"], first["url"], "the chat stays the lane's");
        }
    }
    let login = client.result("tools/call", call("ask_chatgpt_web", "#offline error=login"));
    assert!(login["structuredContent"]["error"]["message"].to_string().contains("browser login"));
    let changed = client.result("tools/call", call("ask_chatgpt_web", "#offline error=changed"));
    let told = changed["structuredContent"]["error"]["message"].to_string();
    assert!(told.contains("#prompt") && told.contains("providers.toml"), "{told}");
    assert_eq!(ask(&mut client, "?")["url"], first["url"]);
}

/// A chat that was deleted is dropped, and the question asked in a new one; it is sent once.
#[test]
fn a_deleted_chat_is_dropped_and_a_new_one_begun() {
    let folder = tempfile::tempdir().unwrap();
    let sent = folder.path().join("sent");
    let cli = Cli::new(PROGRAM, folder.path())
        .env("SHIKIRI_PAGES", format!("offline:{}", sent.display()));
    let mut client = process(&cli, "x");
    let first = ask(&mut client, "?");
    let second = ask(&mut client, "#offline gone=1");
    assert_ne!(first["url"], second["url"]);
    assert_eq!(ask(&mut client, "?")["url"], second["url"]);
    assert_eq!(std::fs::read_to_string(sent).unwrap().lines().count(), 3);
}

/// Without a browser everything says so, with the next step: none is installed, none listens at the
/// address, another program has taken the port, or the address is another machine's.
#[test]
fn without_a_browser_one_is_told_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no-chrome").display().to_string();
    for (variable, value, why) in [
        ("SHIKIRI_CHROME_BIN", missing, "is no program"),
        ("SHIKIRI_BROWSER_URL", "http://127.0.0.1:1".to_owned(), "refused"),
        ("SHIKIRI_BROWSER_URL", taken_port(), "no browser to drive at"),
        ("SHIKIRI_BROWSER_URL", "http://192.0.2.7:9222".to_owned(), "is not on this machine"),
    ] {
        let cli = Cli::new(PROGRAM, folder.path()).env(variable, &value);
        let mut client = process(&cli, "x");
        let result = client.result("tools/call", call("ask_chatgpt_web", "?"));
        assert_eq!(refusal(&result), "BROWSER_UNAVAILABLE");
        let told = text(&result["structuredContent"]["error"], "message");
        assert!(told.contains(why) && told.contains(&value), "{told}");
        let line = &history(&cli, &["--limit", "1"])[0];
        assert_eq!((&line["status"], &line["sent"]), (&json!("failed"), &json!("no")));
        assert_eq!(line["error"]["message"], told);
    }
}

/// The address of a program that is no browser, and answers everybody once.
fn taken_port() -> String {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", taken.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut caller in taken.incoming().map_while(Result::ok) {
            let _ = caller.read(&mut [0; 1024]);
            let _ = caller.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
        }
    });
    address
}

/// Two questions in one lane go one after the other; a cancelled one makes way.
#[test]
fn questions_of_one_lane_wait_for_each_other() {
    on_sqlite(questions_of_one_lane);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_one_lane_wait_for_each_other_on_postgresql() {
    on_postgresql("questions of one lane", questions_of_one_lane).await;
}

fn questions_of_one_lane(cli: &Cli, folder: &Path) {
    let sent = folder.join("sent");
    let cli = cli.clone().env("SHIKIRI_PAGES", format!("offline:{}", sent.display()));
    let mut client = process(&cli, "x");
    let questions: Vec<String> = (0..6).map(|n| format!("q{n}\n#offline delay_ms=50")).collect();
    let ids: Vec<i64> = questions
        .iter()
        .map(|question| client.request("tools/call", call("ask_chatgpt_web", question)))
        .collect();
    for (id, question) in ids.into_iter().zip(&questions) {
        let reply = client.reply(id);
        assert!(text(&answer(&reply["result"]), "answer").ends_with(question.as_str()));
    }
    let chats: Vec<Value> = std::fs::read_to_string(&sent)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["chat"].clone())
        .collect();
    assert_eq!(chats.len(), 6);
    assert!(chats.iter().all(|chat| *chat == chats[0]), "the second waited for the first's chat");

    let hanging = client.request("tools/call", call("ask_chatgpt_web", "#offline hang=1"));
    // Cancelled before it is sent it would be known that it was not.
    let is_sent = || std::fs::read_to_string(&sent).unwrap().contains("hang=1");
    until_blocking("it is sent", is_sent);
    let waiting = client.request("tools/call", call("ask_chatgpt_web", "next"));
    cancel(&mut client, hanging);
    let reply = client.reply(waiting);
    assert!(text(&answer(&reply["result"]), "answer").ends_with("next"));
    let line = history(&cli, &[]).into_iter().find(|line| line["question"] == "#offline hang=1");
    let line = line.expect("it is written down");
    assert_eq!((&line["error"]["code"], &line["sent"]), (&json!("CANCELLED"), &json!("unknown")));
}

/// The limit over all counts every caller, in however many processes; who cannot even wait is told.
#[test]
fn the_limit_over_all_holds_between_processes() {
    on_sqlite(one_question_at_a_time);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_over_all_holds_between_processes_on_postgresql() {
    on_postgresql("the limit over all", one_question_at_a_time).await;
}

fn one_question_at_a_time(cli: &Cli, _: &Path) {
    let cli = cli
        .clone()
        .env("SHIKIRI_MAX_QUESTIONS", "1")
        .env("SHIKIRI_MAX_QUEUED_QUESTIONS", "2")
        .env("SHIKIRI_QUESTION_WAIT_SECONDS", "5");
    let (mut a, mut b) = (process(&cli, "a"), process(&cli, "b"));
    let hanging = a.request("tools/call", call("ask_chatgpt_web", "#offline hang=1"));
    until_blocking("it is under way", || in_flight(&cli) == json!(["chatgpt"]));
    let waits = b.request("tools/call", call("ask_chatgpt_web", "?"));
    let also_waits = b.request("tools/call", call("ask_gemini_web", "?"));
    let too_many = b.request("tools/call", call("ask_gemini_web", "?"));
    let mut told = Vec::new();
    for id in [too_many, waits, also_waits] {
        let result = b.reply(id)["result"].clone();
        assert_eq!(refusal(&result), "QUEUE_FULL");
        told.push(text(&result["structuredContent"]["error"], "message").to_owned());
    }
    // Which of them came last is not promised.
    let full = told.iter().filter(|why| why.contains("2 questions wait already")).count();
    let late = told.iter().filter(|why| why.contains("the question waited 5 seconds")).count();
    assert_eq!((full, late), (1, 2), "{told:?}");
    cancel(&mut a, hanging);
    ask(&mut b, "now");
}

/// Progress reaches the caller while the page is at it, and only ever rises.
#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_while_a_page_answers() {
    let app = server().start().await;
    let mcp = connection(&app, "x").await;
    let mut params = call("ask_chatgpt_gemini_web", "#offline delay_ms=2500");
    params["_meta"]["progressToken"] = json!("p");
    let mut exchange = mcp.request("tools/call", params).await;
    let messages = exchange.rest().await;
    let told: Vec<f64> = messages
        .iter()
        .filter(|message| message.method() == Some("notifications/progress"))
        .map(|message| message.json["params"]["progress"].as_f64().unwrap())
        .collect();
    assert!(told.len() >= 2 && told.is_sorted(), "{told:?}");
}
