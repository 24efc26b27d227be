//! Tabs, browsers and callers that go in the middle: a clear error, and the lane works again.

use std::collections::BTreeMap;

use serde_json::json;
use shikiri_lanes::{AskErrorCause, PageAnswer, PageDriver as _, PageQuestion, SendStatus};
use shikiri_testkit::{ChatSite, Signal, signal, until};

use crate::world::{
    Watcher, World, chromium, keepers, lane, plain, processes_of, question, renderers, then,
};

/// A question that was answered, its answer, and another one in the same chat, whose answer is held
/// back.
async fn begin(world: &World) -> (PageQuestion, PageAnswer, PageQuestion) {
    let first = question("a-1", "plain", "Begin");
    let begun = world.ask(&first).await.unwrap();
    let held = then(&first, &begun, "Then hold on");
    (first, begun, held)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tab_killed_in_mid_answer_is_told_and_the_lane_works_again() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let (first, begun, held) = begin(&world).await;
    let watcher = Watcher::default();
    let (answered, ()) = tokio::join!(world.bridge.ask(&held, &watcher), async {
        watcher.answering().await;
        world.close_tab(begun.tab.as_ref().unwrap()).await;
    });
    let lost = answered.unwrap_err();
    let AskErrorCause::Broken(why) = &lost.cause else { panic!("{lost:?}") };
    assert!(why.contains("closed"), "{why}");
    assert_eq!(lost.sent, SendStatus::Yes, "the provider has it");
    world.site.release();
    let again = world.ask(&then(&first, &begun, "Once again")).await.unwrap();
    assert_eq!(again.answer, ChatSite::answer_to("Once again"));
    assert_eq!(again.url, begun.url, "in the same chat");
    assert_ne!(again.tab, begun.tab);
    assert_eq!(world.site.count("Then hold on"), 1);
}

/// A crash leaves its tab behind, which no longer answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_crashes_in_mid_answer_is_told_and_its_tab_is_given_up() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let (first, begun, held) = begin(&world).await;
    let watcher = Watcher::default();
    let (answered, ()) = tokio::join!(world.bridge.ask(&held, &watcher), async {
        watcher.answering().await;
        for renderer in renderers(world.folder.path()) {
            signal(renderer, Signal::KILL);
        }
    });
    let lost = answered.unwrap_err();
    let AskErrorCause::Broken(why) = &lost.cause else { panic!("{lost:?}") };
    assert!(why.contains("crashed"), "{why}");
    assert_eq!(lost.sent, SendStatus::Yes);
    world.site.release();
    let crashed = begun.tab.clone().unwrap();
    assert!(world.tabs().contains(&crashed), "it is still open");
    let again = world.ask(&then(&first, &begun, "Once again")).await.unwrap();
    assert_eq!((again.answer, again.url), (ChatSite::answer_to("Once again"), begun.url));
    assert_ne!(again.tab.as_ref(), Some(&crashed));
    assert!(!world.tabs().contains(&crashed), "it was waited for, and left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_killed_in_mid_answer_is_told_and_another_is_started() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let (first, begun, held) = begin(&world).await;
    let watcher = Watcher::default();
    let (answered, ()) = tokio::join!(world.bridge.ask(&held, &watcher), async {
        watcher.answering().await;
        signal(chromium(world.folder.path()).unwrap(), Signal::KILL);
    });
    let lost = answered.unwrap_err();
    assert!(matches!(lost.cause, AskErrorCause::Broken(_)), "{lost:?}");
    assert_eq!(lost.sent, SendStatus::Yes);
    world.site.release();
    let again = world.ask(&then(&first, &begun, "Once again")).await.unwrap();
    assert_eq!(again.answer, ChatSite::answer_to("Once again"));
    assert_eq!(again.url, begun.url);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_leaves_a_place_that_works() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let (first, begun, held) = begin(&world).await;
    let watcher = Watcher::default();
    tokio::select! {
        answered = world.bridge.ask(&held, &watcher) => panic!("{answered:?}"),
        () = watcher.answering() => {}
    }
    world.site.release();
    let again = world.ask(&then(&first, &begun, "Once again")).await.unwrap();
    assert_eq!(plain(&again.answer), plain(&ChatSite::answer_to("Once again")));
    assert_eq!(world.site.log().sends.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_closed_leaves_no_tab_and_can_come_back() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let first = question("a-1", "plain", "Begin");
    let begun = world.ask(&first).await.unwrap();
    let tabs = BTreeMap::from([("plain".to_owned(), begun.tab.clone().unwrap())]);
    world.bridge.close(&lane("a-1"), &tabs).await;
    world.bridge.close(&lane("a-1"), &tabs).await;
    world.bridge.close(&lane("never-was"), &BTreeMap::new()).await;
    let again = world.ask(&then(&first, &begun, "I am back")).await.unwrap();
    assert_eq!(again.url, begun.url);
    assert_ne!(again.tab, begun.tab, "the old tab was closed");
}

/// The browser ends with the last process that uses it, and nothing of it is left.
#[tokio::test(flavor = "multi_thread")]
async fn the_browser_ends_with_its_last_user() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    world.ask(&question("a-1", "plain", "Begin")).await.unwrap();
    let another = shikiri_browser::BrowserBridge::new(crate::world::options(world.folder.path()));
    let unwatched = Watcher::default();
    another.ask(&question("b-2", "plain", "Me too"), &unwatched).await.unwrap();
    let pid = chromium(world.folder.path()).unwrap();
    let World { site, bridge, folder } = world;
    drop(bridge);
    another.ask(&question("b-2", "plain", "Still"), &unwatched).await.unwrap();
    assert_eq!(chromium(folder.path()), Some(pid), "it is one browser for both");
    drop(another);
    until("the browser has ended", async || processes_of(folder.path()).is_empty()).await;
    assert_eq!(site.log().sends.len(), 3);
}

/// Also if its keeper is killed, which can then end nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_whose_keeper_is_killed_ends_and_another_is_started() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let first = question("a-1", "plain", "Begin");
    let begun = world.ask(&first).await.unwrap();
    signal(keepers(world.folder.path())[0], Signal::KILL);
    until("the browser has ended", async || processes_of(world.folder.path()).is_empty()).await;
    let again = world.ask(&then(&first, &begun, "Once again")).await.unwrap();
    assert_eq!((again.answer, again.url), (ChatSite::answer_to("Once again"), begun.url));
}
