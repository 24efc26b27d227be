//! Pages that do not let themselves be asked, as the caller of a tool hears of them.

use serde_json::{Value, json};
use shikiri_testkit::{ChatSite, StdioClient};

use super::super::{answer, ask, call, exported, history, process, refusal, text};
use super::{Home, manner, plain};

/// The manner with something more.
fn also(name: &str, value: impl Into<Value>) -> Value {
    let mut manner = manner();
    manner[name] = value.into();
    manner
}

/// The code and the text of a question that comes to nothing.
fn refused(client: &mut StdioClient, question: &str) -> (String, String) {
    let result = client.result("tools/call", call("ask_chatgpt_web", question));
    let told = text(&result["structuredContent"]["error"], "message").to_owned();
    (refusal(&result), told)
}

/// Everything happens to one lane, which goes on in its chat as soon as it can.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_page_does_is_told_by_its_code_and_the_lane_goes_on() {
    let Some(home) = Home::start().await else { return };
    let (cli, site) = (home.cli(), &home.site);
    let mut client = tokio::task::block_in_place(|| process(&cli, "x"));
    let begun = tokio::task::block_in_place(|| ask(&mut client, "Begin"));
    let lane = text(&begun, "lane").to_owned();

    // A login is asked for: told, the chat kept, and nothing typed.
    for login in ["redirect", "wall", "button"] {
        site.change("chatgpt", also("login", login));
        home.close_tab(&lane, "chatgpt").await;
        let (code, told) = tokio::task::block_in_place(|| refused(&mut client, "Let me in"));
        assert_eq!(code, "LOGIN_REQUIRED", "{login}: {told}");
        assert!(told.contains("shikiri browser login"), "{told}");
        let lanes = tokio::task::block_in_place(|| exported(&cli));
        assert_eq!(lanes["agents"][&lane]["chatgpt"]["url"], begun["url"], "{login}");
    }
    // Both are asked, and one wants a login: the other's answer is there all the same.
    let both = call("ask_chatgpt_gemini_web", "Both of you");
    let told = tokio::task::block_in_place(|| answer(&client.result("tools/call", both)));
    assert_eq!(told["chatgpt"]["error"]["code"], "LOGIN_REQUIRED");
    assert_eq!(told["gemini"]["answer"], ChatSite::answer_to("Both of you"));

    // A dialog that can be closed is, one that cannot is told.
    site.change("chatgpt", also("dialog", "stuck"));
    home.close_tab(&lane, "chatgpt").await;
    let (code, told) = tokio::task::block_in_place(|| refused(&mut client, "Hello?"));
    assert_eq!(code, "BROWSER_FAILED", "{told}");
    assert!(told.contains("in the way"), "{told}");
    site.change("chatgpt", also("dialog", "closable"));
    home.close_tab(&lane, "chatgpt").await;
    let asked = tokio::task::block_in_place(|| ask(&mut client, "Once it is closed"));
    assert_eq!(asked["answer"], ChatSite::answer_to("Once it is closed"));
    assert_eq!(asked["url"], begun["url"], "still in its chat");
    site.change("chatgpt", manner());

    // A chat that was deleted is dropped, and the question asked in a new one.
    site.delete(text(&begun, "url"));
    home.close_tab(&lane, "chatgpt").await;
    let anew = tokio::task::block_in_place(|| ask(&mut client, "Anew"));
    assert_eq!(anew["answer"], ChatSite::answer_to("Anew"));
    assert_ne!(anew["url"], begun["url"]);

    let sent = ["Begin", "Both of you", "Once it is closed", "Anew"];
    let arrived: Vec<_> = site.log().sends.into_iter().map(|s| s.text.trim().to_owned()).collect();
    assert_eq!(arrived, sent, "each once, and nothing that was refused");
    let lines = tokio::task::block_in_place(|| history(&cli, &["--provider", "chatgpt"]));
    for line in lines {
        let is_sent = sent.contains(&text(&line, "question")) && line["status"] == "answered";
        assert_eq!(line["sent"], if is_sent { "yes" } else { "no" }, "{line}");
    }
}

/// What is described wrongly is told with the selector and the file; a correction counts at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_description_is_told_with_its_selector_and_file_and_can_be_corrected() {
    let Some(home) = Home::start().await else { return };
    let file = home.folder.path().join(".shikiri/providers.toml").display().to_string();
    tokio::task::block_in_place(|| {
        let mut client = process(&home.cli(), "x");
        // Short times only for what never comes.
        for (from, to, seconds) in [
            ("\"#ask\"", "\"#box\"", "input = 1"),
            ("\"#send\"", "\"#sned\"", "input = 20\nsend = 1"),
        ] {
            home.describe(|text| text.replace("input = 20", seconds).replace(from, to));
            let (code, told) = refused(&mut client, "Anybody?");
            assert_eq!(code, "PAGE_CHANGED", "{told}");
            assert!(told.contains(to.trim_matches('"')) && told.contains(&file), "{told}");
        }
        home.describe(|text| format!("{text}\n[chatgpt.selectors]"));
        let (code, told) = refused(&mut client, "Anybody?");
        assert!(code == "BROWSER_FAILED" && told.contains(&file), "{code}: {told}");

        home.describe(|text| text.replacen("[chatgpt]", "[chatgpt]\nenabled = false", 1));
        let (code, told) = refused(&mut client, "Anybody?");
        assert!(code == "UNKNOWN_PROVIDER" && told.contains("switched off"), "{code}: {told}");
        let info = answer(&client.result("tools/call", json!({ "name": "lane_info" })));
        let enabled = |id: &str| {
            let providers = info["providers"].as_array().unwrap();
            providers.iter().find(|p| p["id"] == id).unwrap()["is_enabled"].clone()
        };
        assert_eq!((enabled("chatgpt"), enabled("gemini")), (json!(false), json!(true)));

        assert!(home.site.log().sends.is_empty());
        home.describe(|text| text);
        assert_eq!(ask(&mut client, "Now?")["answer"], ChatSite::answer_to("Now?"));
    });
}

/// Questions and answers of any length are whole, and nothing in them steers a terminal.
#[tokio::test(flavor = "multi_thread")]
async fn long_and_dirty_answers_come_whole_and_clean() {
    let Some(home) = Home::start().await else { return };
    home.site.change("chatgpt", also("piece_ms", 0));
    let mut long = "words=20000 ".to_owned();
    while long.chars().count() < 99_980 {
        long.push_str("長い質問 and more ");
    }
    let long: String = long.trim().chars().take(100_000).collect();
    tokio::task::block_in_place(|| {
        let mut client = process(&home.cli(), "x");
        // The browser's start and the long way together might be more than a client waits.
        ask(&mut client, "Begin");
        let asked = ask(&mut client, &long);
        assert_eq!(plain(text(&asked, "answer")), plain(&ChatSite::answer_to(&long)));

        let result = client.result("tools/call", call("ask_chatgpt_web", "Send controls please"));
        let said = text(&result["structuredContent"], "answer").to_owned();
        assert!(said.ends_with("word12 red turned"), "{said:?}");
        let shown = text(&result["content"][0], "text");
        let is_harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!shown.contains(is_harmful) && !shown.contains("\\u001b"), "{shown:?}");
    });
    assert_eq!(home.site.log().sends.len(), 3);
}
