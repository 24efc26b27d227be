//! Time and number: how long lanes live, and how many there are.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{Cli, StdioClient, TestApp, until};

use super::{
    answer, ask, call, cli, connection, exported, on_postgresql, on_sqlite, process, refusal,
    servers,
};

/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(120);

/// Rows 0.10, 0.11: every call gives a lane its whole time again; one that is not used ends and is in
/// no list, and its declared agent gets the chat back.
#[test]
fn a_lane_ends_after_its_time_and_every_call_begins_it_anew() {
    on_sqlite(one_kept_and_one_left);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_ends_after_its_time_on_postgresql() {
    on_postgresql("how long lanes live", one_kept_and_one_left).await;
}

fn one_kept_and_one_left(cli: &Cli, _: &Path) {
    let cli = cli.clone().env("SHIKIRI_SESSION_TTL_MINUTES", "0.1");
    let mut kept = process(&cli.clone().env("SHIKIRI_AGENT_ID", "kept"), "x");
    let mut left = process(&cli.clone().env("SHIKIRI_AGENT_ID", "left"), "x");
    let (first_kept, start) = (ask(&mut kept, "?"), Instant::now());
    let first_left = ask(&mut left, "?");
    let names = |lanes: &Value| lanes["agents"].as_object().unwrap().keys().cloned().collect();
    let kept_name = format!("kept-{}", kept.pid());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // It is asked for all the while, the other is not. How long a look takes does not matter.
        scope.spawn(|| keep_asking(&mut kept, &is_over, start));
        loop {
            let open: Vec<String> = names(&exported(&cli));
            if open == [kept_name.clone()] {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "the idle lane stays: {open:?}");
        }
        assert!(start.elapsed() > Duration::from_secs(5), "it ended before its time");
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(ask(&mut left, "again")["url"], first_left["url"], "the chat is remembered");
    assert_eq!(ask(&mut kept, "again")["url"], first_kept["url"]);
    let ended = cli.run(&["lanes", "list", "--json"]).done().json();
    assert_eq!(ended["items"].as_array().unwrap().len(), 2);
}

/// Gives its lane no rest, for as long as a test may look.
fn keep_asking(client: &mut StdioClient, is_over: &AtomicBool, start: Instant) {
    while !is_over.load(Ordering::Relaxed) && start.elapsed() < PATIENCE {
        let info = answer(&client.result("tools/call", json!({ "name": "lane_info" })));
        assert_eq!(info["is_open"], true);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Row 0.12: past the limit the one goes whose last call is longest ago; who is at work stays, and
/// where all are, one is told so.
#[tokio::test(flavor = "multi_thread")]
async fn past_the_limit_the_idlest_lane_goes_and_never_one_at_work() {
    for app in servers("how many lanes", |app| app.env("SHIKIRI_MAX_AGENTS", "2")).await {
        three_where_two_may_be(&app).await;
    }
}

async fn three_where_two_may_be(app: &TestApp) {
    let mut lanes = Vec::new();
    for name in ["a", "b", "c"] {
        lanes.push(connection(app, name).await);
    }
    let ask = async |at: usize, question: &str| {
        lanes[at].result("tools/call", call("ask_chatgpt_web", question)).await
    };
    let listed = async || {
        let page = app.client().get("/v1/tenants/local/lanes").await.expect(200);
        page["items"].as_array().unwrap().clone()
    };
    let open = async || {
        let items = listed().await;
        let mut agents: Vec<String> =
            items.iter().map(|lane| lane["agent"].as_str().unwrap().to_owned()).collect();
        agents.sort();
        agents
    };
    answer(&ask(0, "?").await);
    answer(&ask(1, "?").await);
    answer(&ask(0, "again").await);
    assert_eq!(open().await, ["a", "b"]);
    answer(&ask(2, "?").await);
    assert_eq!(open().await, ["a", "c"], "b was idle the longest");

    // At work until they are told to stop.
    let work = async |at: usize| {
        let question = json!({ "question": "#offline hang=1" });
        lanes[at].call_as(&json!("work"), &json!("work"), "ask_chatgpt_web", question).await
    };
    let all_have =
        async |in_flight: Value| listed().await.iter().all(|lane| lane["in_flight"] == in_flight);
    tokio::join!(work(0), work(2), async {
        until("both work", async || all_have(json!(["chatgpt"])).await).await;
        assert_eq!(refusal(&ask(1, "?").await), "LANES_FULL");
        assert!(all_have(json!(["chatgpt"])).await && open().await == ["a", "c"], "they stay");
        for at in [0, 2] {
            lanes[at].notify("notifications/cancelled", json!({ "requestId": "work" })).await;
        }
    });
    until("neither works", async || all_have(json!([])).await).await;
    answer(&ask(1, "now").await);
}

/// Row 0.14: what is no number above zero is the default, the limit is floored, and ours wins.
#[test]
fn settings_of_the_environment_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    cli(folder.path()).run(&["lanes", "clean"]).done();
    let config = |variables: &[(&str, &str)]| {
        let cli =
            variables.iter().fold(cli(folder.path()), |cli, (name, value)| cli.env(name, value));
        let config = exported(&cli)["config"].clone();
        (config["sessionTtlMinutes"].as_f64().unwrap(), config["maxAgents"].as_u64().unwrap())
    };
    assert_eq!(config(&[]), (30.0, 10));
    for bad in ["NaN", "0", "-3", "viel", "", "inf", "-0.0"] {
        for prefix in ["SHIKIRI", "CAI"] {
            let (ttl, max) =
                (format!("{prefix}_SESSION_TTL_MINUTES"), format!("{prefix}_MAX_AGENTS"));
            assert_eq!(config(&[(&ttl, bad), (&max, bad)]), (30.0, 10), "{bad:?}");
        }
    }
    assert_eq!(config(&[("CAI_SESSION_TTL_MINUTES", "0.5"), ("CAI_MAX_AGENTS", "3.9")]), (0.5, 3));
    assert_eq!(config(&[("SHIKIRI_MAX_AGENTS", "0.5")]), (30.0, 10));
    let both = [("SHIKIRI_MAX_AGENTS", "7"), ("CAI_MAX_AGENTS", "3")];
    assert_eq!(config(&both), (30.0, 7));
    let bad_ours = [("SHIKIRI_MAX_AGENTS", "NaN"), ("CAI_MAX_AGENTS", "3")];
    assert_eq!(config(&bad_ours), (30.0, 10), "ours wins even where it says nothing of use");
    // What is no setting of the bridge before is refused, as everywhere.
    for variable in
        ["SHIKIRI_MAX_QUESTIONS", "SHIKIRI_MAX_QUEUED_QUESTIONS", "SHIKIRI_QUESTION_WAIT_SECONDS"]
    {
        for bad in ["viel", "-1", "0", "NaN"] {
            let cli = cli(folder.path()).env(variable, bad);
            cli.run(&["lanes", "list"]).refused(2, &[variable]);
        }
    }
    cli(folder.path())
        .env("SHIKIRI_PAGES", "netscape")
        .run(&["lanes", "list"])
        .refused(2, &["SHIKIRI_PAGES", "netscape"]);
}
