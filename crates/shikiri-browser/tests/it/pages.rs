//! Pages that work, in all the ways in which they do.

use std::sync::atomic::Ordering;

use serde_json::json;
use shikiri_lanes::{AskStage, PageDriver as _};
use shikiri_testkit::ChatSite;

use crate::world::{Watcher, World, plain, question, then};

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_is_begun_and_gone_on_with_in_its_own_tab() {
    let manner = json!({ "marked": true, "input_delay_ms": 300, "send_delay_ms": 150 });
    let Some(world) = World::start(&[("plain", manner)]).await else { return };
    let watcher = Watcher::default();
    let first = question("a-1", "plain", "What is 仕切り?");
    let asked = world.bridge.ask(&first, &watcher).await.unwrap();

    assert_eq!(asked.answer, ChatSite::answer_to("What is 仕切り?"));
    let address = format!("{}/plain/c/plain-1", world.site.origin());
    assert_eq!(asked.url.as_deref(), Some(address.as_str()), "without its query");
    let times = asked.timings;
    // The button comes a while after the first letter, when more may still be typed.
    let until_sent = times.input_ms + times.send_ms;
    assert!(times.wait_input_ms >= 100 && until_sent >= 100, "{times:?}");
    let parts = [times.connect_ms, times.wait_input_ms, times.input_ms, times.send_ms];
    assert!(parts.iter().sum::<u64>() + times.wait_response_ms <= times.total_ms + 5, "{times:?}");
    assert_eq!(watcher.asked.load(Ordering::SeqCst), 1);
    let stages = watcher.stages.lock().unwrap().clone();
    let expected =
        [AskStage::Connecting, AskStage::WaitingForInput, AskStage::Typing, AskStage::Sending];
    assert_eq!(stages[..4], expected);
    assert!(matches!(stages.last(), Some(AskStage::Answering { characters }) if *characters > 20));

    let second = then(&first, &asked, "And then?");
    let again = world.ask(&second).await.unwrap();
    assert_eq!(again.answer, ChatSite::answer_to("And then?"), "not the answer before it");
    assert_eq!((&again.url, &again.tab), (&asked.url, &asked.tab));
    let log = world.site.log();
    assert_eq!(log.chats["plain-1"].len(), 2, "{log:?}");
    assert_eq!(log.sends.len(), 2);

    // Without an address, a new chat is begun.
    let other = world.ask(&question("a-1", "plain", "Something else")).await.unwrap();
    assert_eq!(other.url.unwrap(), format!("{}/plain/c/plain-2", world.site.origin()));
    assert_eq!(other.tab, asked.tab, "a lane has one tab at a provider");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_input_box_is_typed_in() {
    let rooms = [
        ("editable", json!({ "editor": "editable" })),
        ("enter", json!({ "editor": "enter", "marked": true })),
        ("textarea", json!({})),
    ];
    let Some(world) = World::start(&rooms).await else { return };
    let text = "日本語 \"quoted\" <b>not bold</b> \\n ${x} `code` 👩‍👩‍👧 é";
    for (room, _) in rooms {
        let asked = world.ask(&question("a-1", room, text)).await.unwrap();
        assert_eq!(plain(&asked.answer), plain(&ChatSite::answer_to(text)), "{room}");
    }
    // Only where Enter does not send can a question have lines.
    for room in ["editable", "textarea"] {
        let lines = format!("{room}: first line\nsecond line\n\n- a list");
        let asked = world.ask(&question("a-2", room, &lines)).await.unwrap();
        assert_eq!(plain(&asked.answer), plain(&ChatSite::answer_to(&lines)));
    }
    assert_eq!(world.site.log().sends.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn very_long_questions_and_answers_are_whole() {
    let rooms = [("editable", json!({ "editor": "editable", "piece_ms": 0 }))];
    let Some(world) = World::start(&rooms).await else { return };
    let mut text = "words=20000 ".to_owned();
    while text.chars().count() < 99_980 {
        text.push_str("長い質問 and more ");
    }
    let text: String = text.trim().chars().take(100_000).collect();
    let asked = world.ask(&question("a-1", "editable", &text)).await.unwrap();
    assert_eq!(plain(&asked.answer), plain(&ChatSite::answer_to(&text)));
    assert!(asked.answer.ends_with("word20000"), "the end is there");
    assert_eq!(world.site.count(&text), 1);
}

/// Rows 0.15, 0.16: each lane has a tab of its own at each provider, whatever tab it names.
#[tokio::test(flavor = "multi_thread")]
async fn no_lane_gets_into_the_tab_of_another() {
    let manner = json!({ "marked": true });
    let rooms = [("one", manner.clone()), ("two", manner)];
    let Some(world) = World::start(&rooms).await else { return };
    let mut tabs = Vec::new();
    for lane in ["a-1", "b-2"] {
        for room in ["one", "two"] {
            let asked = world.ask(&question(lane, room, &format!("{lane} {room}"))).await.unwrap();
            tabs.push(asked.tab.unwrap());
        }
    }
    let mut stolen = question("c-3", "one", "May I?");
    stolen.tab = Some(tabs[0].clone());
    tabs.push(world.ask(&stolen).await.unwrap().tab.unwrap());
    let count = tabs.len();
    tabs.sort();
    tabs.dedup();
    assert_eq!(tabs.len(), count, "a tab is shared");
}
