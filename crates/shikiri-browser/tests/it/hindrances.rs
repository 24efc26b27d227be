//! Pages that do not let themselves be asked: each is told by its own error, before anything is sent.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use shikiri_lanes::{AskErrorCause, PageDriver as _, SendStatus};
use shikiri_testkit::ChatSite;

use crate::world::{Watcher, World, question, then};

#[tokio::test(flavor = "multi_thread")]
async fn a_login_wall_is_told_and_never_passed() {
    let rooms = [
        ("redirect", json!({ "login": "redirect" })),
        ("wall", json!({ "login": "wall", "input_delay_ms": 100 })),
        ("button", json!({ "login": "button" })),
    ];
    let Some(world) = World::start(&rooms).await else { return };
    for (room, _) in rooms {
        let mut asked = question("a-1", room, "Let me in");
        asked.url = Some(format!("{}/{room}/c/old-1", world.site.origin()));
        for url in [None, asked.url.clone()] {
            asked.url = url;
            let refused = world.ask(&asked).await.unwrap_err();
            assert_eq!(
                refused.cause,
                AskErrorCause::LoginRequired { provider: room.to_owned() },
                "{room}"
            );
            assert_eq!(refused.sent, SendStatus::No);
        }
    }
    assert!(world.site.log().sends.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_chat_is_told_and_a_new_one_can_be_begun() {
    let rooms = ["status", "redirect", "late", "notice"]
        .map(|gone| (gone, json!({ "gone": gone, "marked": true, "history_delay_ms": 200 })));
    let Some(world) = World::start(&rooms).await else { return };
    for (room, _) in &rooms {
        let first = question("a-1", room, &format!("Begin in {room}"));
        let asked = world.ask(&first).await.unwrap();
        world.site.delete(asked.url.as_ref().unwrap());
        // As after a restart: the page is not open any more.
        world.close_tab(asked.tab.as_ref().unwrap()).await;
        let refused = world.ask(&then(&first, &asked, "Go on")).await.unwrap_err();
        assert_eq!(
            (refused.cause, refused.sent),
            (AskErrorCause::ThreadGone, SendStatus::No),
            "{room}"
        );
        let anew = world.ask(&question("a-1", room, "Anew")).await.unwrap();
        assert_eq!(anew.answer, ChatSite::answer_to("Anew"));
    }
    assert_eq!(world.site.count("Go on"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_conversation_of_the_provider_is_not_opened() {
    let Some(world) = World::start(&[("plain", json!({}))]).await else { return };
    let origin = world.site.origin().to_owned();
    for url in ["file:///etc/passwd", "https://evil.example/plain/c/x", &format!("{origin}/plain/")]
    {
        let mut asked = question("a-1", "plain", "Where am I?");
        asked.url = Some(url.to_owned());
        let refused = world.ask(&asked).await.unwrap_err();
        assert_eq!(
            (refused.cause, refused.sent),
            (AskErrorCause::ThreadGone, SendStatus::No),
            "{url}"
        );
    }
    for provider in ["absent", "chatgpt"] {
        let refused = world.ask(&question("a-1", provider, "?")).await.unwrap_err();
        assert_eq!(refused.cause, AskErrorCause::UnknownProvider(provider.to_owned()));
    }
    assert!(world.site.log().sends.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dialog_in_the_way_is_closed_or_told() {
    let rooms = [
        ("closable", json!({ "dialog": "closable", "marked": true })),
        ("alert", json!({ "dialog": "alert", "marked": true })),
        ("stuck", json!({ "dialog": "stuck", "marked": true })),
    ];
    let Some(world) = World::start(&rooms).await else { return };
    for room in ["closable", "alert"] {
        let asked = world.ask(&question("a-1", room, "Hello?")).await.unwrap();
        assert_eq!(asked.answer, ChatSite::answer_to("Hello?"), "{room}");
    }
    let refused = world.ask(&question("a-1", "stuck", "Hello there?")).await.unwrap_err();
    let AskErrorCause::Broken(why) = &refused.cause else { panic!("{refused:?}") };
    assert!(why.starts_with("something is in the way of stuck's input box"), "{why}");
    assert_eq!(refused.sent, SendStatus::No);
    assert_eq!(world.site.count("Hello there?"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_page_is_told_with_its_selector_and_the_file_to_correct() {
    let rooms = [("strange", json!({ "strange": true })), ("plain", json!({ "marked": true }))];
    let Some(world) = World::start(&rooms).await else { return };
    let file = world.folder.path().join("providers.toml").display().to_string();
    let changed = |selector: &str| AskErrorCause::PageChanged {
        provider: String::new(),
        selector: selector.to_owned(),
        file: file.clone(),
    };
    let without_name = |cause: AskErrorCause| match cause {
        AskErrorCause::PageChanged { selector, file, .. } => {
            AskErrorCause::PageChanged { provider: String::new(), selector, file }
        }
        other => other,
    };
    // Short times only for what never comes: the rest takes as long as the machine likes.
    world.describe(|text| text.replace("input = 20", "input = 1"));
    let refused = world.ask(&question("a-1", "strange", "Anybody?")).await.unwrap_err();
    assert_eq!(without_name(refused.cause), changed("input: #ask"));
    for (from, to, expected) in [
        ("send = [\"#send\"]", "send = [\"#sned\"]", "send: #sned"),
        ("stop = [\"#stop\"]", "stop = [\"#stop[\"]", "stop: #stop["),
    ] {
        world.describe(|text| text.replace("input = 20", "input = 20\nsend = 1").replace(from, to));
        let refused = world.ask(&question("a-1", "plain", "Anybody?")).await.unwrap_err();
        assert_eq!(without_name(refused.cause), changed(expected));
        assert_eq!(refused.sent, SendStatus::No);
    }
    assert!(world.site.log().sends.is_empty());

    // What the answer looks like is found out only when there is one.
    world.describe(|text| text.replace("answer = [\".a\"]", "answer = [\".answer\"]"));
    let refused = world.ask(&question("a-1", "plain", "Anybody there?")).await.unwrap_err();
    assert_eq!(without_name(refused.cause), changed("answer: .answer"));
    assert_eq!(refused.sent, SendStatus::Yes);
    let chat = format!("{}/plain/c/plain-1", world.site.origin());
    assert_eq!(refused.url.as_deref(), Some(chat.as_str()), "the chat that it opened is known");

    // The correction counts at once.
    world.describe(|text| text);
    assert!(world.ask(&question("a-1", "plain", "Now?")).await.is_ok());
    world.describe(|text| format!("{text}\n[plain.selectors]"));
    let refused = world.ask(&question("a-1", "plain", "And now?")).await.unwrap_err();
    let AskErrorCause::Broken(why) = &refused.cause else { panic!("{refused:?}") };
    assert!(why.starts_with(&file) && why.contains("line "), "{why}");
    assert_eq!(world.site.count("Anybody there?"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_come_late_are_not_the_answer() {
    let manner = json!({ "history_delay_ms": 1500, "marked": true });
    let Some(world) = World::start(&[("late", manner)]).await else { return };
    let first = question("a-1", "late", "Once more");
    let asked = world.ask(&first).await.unwrap();
    world.close_tab(asked.tab.as_ref().unwrap()).await;
    // The same words again: only the number of messages tells the two apart.
    let again = world.ask(&then(&first, &asked, "Once more")).await.unwrap();
    assert_eq!(world.site.count("Once more"), 2);
    let log = world.site.log();
    assert_eq!(log.chats["late-1"].len(), 2, "in the same chat");
    assert_eq!(again.answer, ChatSite::answer_to("Once more"));
    assert!(log.own_ms.len() == 1 && again.timings.wait_input_ms >= 1_000, "{:?}", again.timings);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_answer_is_not_read_while_the_page_takes_its_time() {
    let manner = json!({ "question_delay_ms": 700, "marked": true });
    let Some(world) = World::start(&[("slow", manner)]).await else { return };
    let first = question("a-1", "slow", "Again");
    let mut asked = world.ask(&first).await.unwrap();
    for number in 2..=3 {
        // The same words: the question before it looks just like this one.
        asked = world.ask(&then(&first, &asked, "Again")).await.unwrap();
        let waited = asked.timings.send_ms + asked.timings.wait_response_ms;
        assert!(waited >= 700, "answer {number} was there before its question: {waited} ms");
    }
    assert_eq!(world.site.count("Again"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_its_witness_gives_up_is_not_sent() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let watcher = Watcher::default();
    watcher.refuses.store(true, Ordering::SeqCst);
    let refused = world.bridge.ask(&question("a-1", "plain", "No"), &watcher).await.unwrap_err();
    assert_eq!((refused.cause, refused.sent), (AskErrorCause::GivenUp, SendStatus::No));
    assert_eq!(watcher.asked.load(Ordering::SeqCst), 1);
    // What was typed and left does not get into the next question.
    let asked = world.ask(&question("a-1", "plain", "Yes")).await.unwrap();
    assert_eq!(asked.answer, ChatSite::answer_to("Yes"));
    assert_eq!(world.site.log().sends.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_end_is_given_up_in_time() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    // The browser's own start is not counted.
    world.ask(&question("a-1", "plain", "Begin")).await.unwrap();
    world.describe(|text| text.replace("settle = 0.4", "settle = 0.4\nanswer = 6"));
    let began = std::time::Instant::now();
    let refused = world.ask(&question("a-1", "plain", "hold")).await.unwrap_err();
    assert_eq!((refused.cause, refused.sent), (AskErrorCause::AnswerTimeout, SendStatus::Yes));
    assert!(refused.url.is_some(), "the chat that it opened is known");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    world.describe(|text| text);
    world.site.release();
    let asked = world.ask(&question("a-1", "plain", "Next")).await.unwrap();
    assert_eq!(asked.answer, ChatSite::answer_to("Next"));
}
