//! Time and number: how long lanes live, and how many there are.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_testkit::{Cli, TestApp};

use super::{
    answer, ask, call, cli, connection, exported, on_postgresql, on_sqlite, process, refusal,
    servers,
};

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
    let cli = cli.clone().env("SHIKIRI_SESSION_TTL_MINUTES", "0.05");
    let mut kept = process(&cli.clone().env("SHIKIRI_AGENT_ID", "kept"), "x");
    let mut left = process(&cli.clone().env("SHIKIRI_AGENT_ID", "left"), "x");
    let (first_kept, first_left) = (ask(&mut kept, "?"), ask(&mut left, "?"));
    let names = |lanes: &Value| lanes["agents"].as_object().unwrap().keys().cloned().collect();
    let kept_name = format!("kept-{}", kept.pid());
    // It is asked for all the while, the other is not.
    let start = Instant::now();
    loop {
        let info = answer(&kept.result("tools/call", json!({ "name": "lane_info" })));
        assert_eq!(info["is_open"], true);
        let open: Vec<String> = names(&exported(&cli));
        if open == [kept_name.clone()] {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the idle lane stays: {open:?}");
    }
    assert!(start.elapsed() > Duration::from_secs(2), "it ended before its time");
    assert_eq!(ask(&mut left, "again")["url"], first_left["url"], "the chat is remembered");
    assert_eq!(ask(&mut kept, "again")["url"], first_kept["url"]);
    let ended = cli.run(&["lanes", "list", "--json"]).done().json();
    assert_eq!(ended["items"].as_array().unwrap().len(), 2);
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
    let open = async || {
        let page = app.client().get("/v1/tenants/local/lanes").await.expect(200);
        let items = page["items"].as_array().unwrap().clone();
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

    let slow = "#offline delay_ms=4000";
    let (busy_a, busy_c, refused) = tokio::join!(ask(0, slow), ask(2, slow), async {
        // Both are at work by then.
        loop {
            let page = app.client().get("/v1/tenants/local/lanes").await.expect(200);
            let items = page["items"].as_array().unwrap().clone();
            if items.iter().all(|lane| lane["in_flight"] == json!(["chatgpt"])) {
                break;
            }
        }
        ask(1, "?").await
    });
    assert_eq!(refusal(&refused), "LANES_FULL");
    answer(&busy_a);
    answer(&busy_c);
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
