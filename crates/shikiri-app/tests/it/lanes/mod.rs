//! Lanes with pages that the test holds in its hand, on both kinds of store.

mod returning;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use shikiri_lanes::LaneOptions;
use shikiri_model::ids::TenantId;
use shikiri_model::lane::SendStatus;
use shikiri_testkit::until;

use self::world::{Pages, World, limits, who};

/// Rows 0.15, 0.16: what is open grows with lanes and providers, and in no place there are ever two
/// questions at once; waiting questions keep their order.
#[tokio::test(flavor = "multi_thread")]
async fn each_lane_and_provider_is_asked_alone_and_nothing_is_shared() {
    for world in World::each(|| Pages::new(0), &limits(10)).await {
        let node = world.app.start_worker();
        node.joined().await;
        let mut runs = Vec::new();
        for pid in 1..=3 {
            for turn in 0..3 {
                let question = format!("{pid}/{turn}");
                runs.push((
                    question.clone(),
                    world.ask(&who(pid), "ask_chatgpt_gemini_web", &question).await,
                ));
            }
        }
        // Three lanes at two providers.
        world.pages.until_open(6).await;
        world.pages.gate.add_permits(100);
        for (question, run) in &runs {
            let result = world.answer(run).await;
            for provider in ["chatgpt", "gemini"] {
                assert_eq!(result[provider]["answer"], format!("to {question}"));
                let lane = result["lane"].as_str().unwrap();
                assert_eq!(
                    result[provider]["url"],
                    format!("https://page.example/{lane}/{provider}")
                );
            }
        }
        assert_eq!(world.pages.state().most, 6);
        assert_eq!(world.history().await.len(), 18);
        assert!(world.history().await.iter().all(|asked| asked.sent == SendStatus::Yes));
        node.leave().await;
    }
}

/// Who asks first is asked first: a lane's waiting questions keep their order.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_keeps_the_order_of_its_questions() {
    for world in World::each(|| Pages::new(0), &limits(10)).await {
        let node = world.app.start_worker();
        node.joined().await;
        let mut runs = vec![world.ask(&who(1), "ask_chatgpt_web", "0").await];
        world.pages.until_open(1).await;
        for number in 1..8 {
            runs.push(world.ask(&who(1), "ask_chatgpt_web", &number.to_string()).await);
            // Until it stands in the queue; its order is that of coming.
            world.pages.until_looked_up(runs.len()).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        world.pages.gate.add_permits(100);
        for run in &runs {
            world.answer(run).await;
        }
        let asked: Vec<String> =
            world.pages.state().asked.iter().map(|asked| asked.1.clone()).collect();
        assert_eq!(asked, ["0", "1", "2", "3", "4", "5", "6", "7"]);
        node.leave().await;
    }
}

/// Row 0.11: thirty minutes without a call, and the next sweep ends a lane; its chat is remembered.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_lane_ends_with_the_next_sweep_and_its_chat_is_remembered() {
    for world in World::each(|| Pages::new(100), &limits(10)).await {
        let node = world.app.start_worker();
        node.joined().await;
        for pid in [1, 2] {
            let run = world.ask(&who(pid), "ask_chatgpt_web", "?").await;
            world.answer(&run).await;
        }
        world.clock.jump(29 * 60_000);
        let touched = world.app.lanes.lane_info(&TenantId::local(), &who(1)).await.unwrap();
        assert!(touched.lane.is_some());
        assert_eq!(world.app.lanes.clean_lanes().await.unwrap(), 0);
        world.clock.jump(60_000);
        // The node sweeps too: the first sweep ends it.
        world.app.lanes.clean_lanes().await.unwrap();
        until("the idle lane ends", async || world.open_lanes().await == ["x-1"]).await;
        assert!(
            world.app.lanes.lane_info(&TenantId::local(), &who(2)).await.unwrap().lane.is_none()
        );
        let run = world.ask(&who(2), "ask_chatgpt_web", "again").await;
        assert_eq!(world.answer(&run).await["url"], "https://page.example/x-2/chatgpt");
        let asked = world.pages.state().asked.last().cloned().unwrap();
        assert_eq!(asked.2.as_deref(), Some("https://page.example/x-2/chatgpt"));
        node.leave().await;
    }
}

/// Row 0.15: the tabs that are closed are those of the lane that goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_ends_takes_its_own_tabs_along_and_no_others() {
    for world in World::each(|| Pages::new(100), &limits(2)).await {
        let node = world.app.start_worker();
        node.joined().await;
        for pid in [1, 2, 3] {
            let run = world.ask(&who(pid), "ask_chatgpt_gemini_web", "?").await;
            world.answer(&run).await;
            world.clock.jump(1_000);
        }
        let tab = |provider: &str| (provider.to_owned(), format!("tab-x-1-{provider}"));
        let tabs = BTreeMap::from([tab("chatgpt"), tab("gemini")]);
        assert_eq!(world.pages.state().closed, [("x-1".to_owned(), tabs)]);
        assert_eq!(world.open_lanes().await, ["x-2", "x-3"]);
        node.leave().await;
    }
}

/// Two processes that open lanes at the same moment do not pass the limit together.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_are_opened_at_once_stay_within_the_limit() {
    for world in World::each(|| Pages::new(100), &limits(5)).await {
        let tenant = TenantId::local();
        let opened = (1..=30).map(|pid| {
            let (app, tenant) = (world.app.clone(), tenant.clone());
            tokio::spawn(async move { app.lanes.open_lane(&tenant, &who(pid)).await.unwrap() })
        });
        for opened in opened.collect::<Vec<_>>() {
            opened.await.unwrap();
            let open = world.open_at_once().await;
            assert!(open <= 5, "{open} lanes are open");
        }
        assert_eq!(world.open_at_once().await, 5);
    }
}

/// The same lane in two processes, as when a run is taken up elsewhere: what keeps them apart is in
/// the store, not in either of them.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_never_ask_in_one_place_at_once() {
    for world in World::each(|| Pages::new(0), &limits(10)).await {
        let mut runs = Vec::new();
        for turn in 0..8 {
            runs.push(world.ask(&who(1), "ask_chatgpt_web", &turn.to_string()).await);
        }
        // Neither can carry all of them.
        let nodes = [0, 1].map(|_| world.another_app(4, &world.pages).start_worker());
        for run in &runs {
            world.until_at_it(run).await;
        }
        world.pages.until_open(1).await;
        world.pages.gate.add_permits(100);
        // The pages would not bear two at once.
        for run in &runs {
            world.answer(run).await;
        }
        assert_eq!(world.pages.state().most, 1);
        let inquiries = world.history().await;
        assert_eq!(inquiries.len(), 8);
        assert!(inquiries.iter().all(|asked| asked.sent == SendStatus::Yes), "{inquiries:?}");
        for node in nodes {
            node.leave().await;
        }
    }
}

/// A process that stood still while it typed, for so long that another asks in its place: when it
/// goes on, it may not send any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_lost_its_place_while_typing_is_not_sent() {
    // Longer than the test takes: by the clock that is real, nothing runs out.
    let options = LaneOptions { lease: Duration::from_secs(20), ..limits(10) };
    for world in World::each(Pages::hesitant, &options).await {
        let slow = world.another_app(1, &world.pages).start_worker();
        slow.joined().await;
        let first = world.ask(&who(1), "ask_chatgpt_web", "first").await;
        world.pages.until_open(1).await;
        world.clock.advance(Duration::from_secs(21));
        let others = Pages::new(100);
        let quick = world.another_app(4, &others).start_worker();
        let second = world.ask(&who(1), "ask_chatgpt_web", "second").await;
        world.answer(&second).await;
        assert_eq!(others.state().sent, ["second"]);
        world.pages.typing.add_permits(1);
        let error = world.end_of(&first).await.run.error.unwrap();
        assert_eq!(error.code, "CANCELLED", "{error:?}");
        assert!(world.pages.state().sent.is_empty(), "it was sent");
        let asked = world.history().await;
        let sent: Vec<_> = asked.iter().map(|one| (one.question.as_str(), one.sent)).collect();
        assert_eq!(sent, [("second", SendStatus::Yes), ("first", SendStatus::No)]);
        quick.leave().await;
        slow.leave().await;
    }
}

/// A provider that is switched off is not asked; what a page fails with is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_provider_is_refused_and_a_page_that_fails_is_told() {
    for world in World::each(Pages::switched_off, &limits(10)).await {
        let node = world.app.start_worker();
        node.joined().await;
        let run = world.ask(&who(1), "ask_chatgpt_web", "?").await;
        let error = world.end_of(&run).await.run.error.unwrap();
        assert_eq!(error.code, "UNKNOWN_PROVIDER");
        assert!(world.history().await.is_empty() && world.open_lanes().await.is_empty());
        node.leave().await;
    }

    for world in World::each(Pages::failing, &limits(10)).await {
        let node = world.app.start_worker();
        node.joined().await;
        let run = world.ask(&who(1), "ask_chatgpt_gemini_web", "?").await;
        let error = world.end_of(&run).await.run.error.unwrap();
        assert_eq!((error.code.as_str(), error.message.as_str()), ("BROWSER_FAILED", "no page"));
        assert!(world.history().await.iter().all(|asked| asked.sent == SendStatus::No));
        node.leave().await;
    }
}
