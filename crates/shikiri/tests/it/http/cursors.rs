//! Cursors: of streams and of lists, wrong ones and expired ones.

use serde_json::json;
use shikiri_model::event::StreamId;
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use shikiri_store::Store as _;
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_testkit::{Client, Cut, Reader, Tenant, TestApp};

use crate::PROGRAM;

/// A run that has ended, with the number of its last event.
async fn ended_run(local: &Tenant) -> (String, u64) {
    let input = json!({ "steps": 5, "step_ms": 1 });
    let run = local.start_run("long_running_agent", input).await;
    let last = local.reader(&run, Cut::End).rest().await.last().unwrap().seq().unwrap();
    (run, last)
}

async fn status_after(client: &Client, path: &str, header: &str) -> u16 {
    let request = client.request(reqwest::Method::GET, path).header("last-event-id", header);
    let answer = client.send(request).await;
    if answer.status == 400 {
        answer.problem(400);
    }
    answer.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_never_existed_is_400() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    let (run, last) = ended_run(&local).await;
    let path = local.events_path(&run);
    let ahead = (last + 1).to_string();
    for bad in [&ahead, "-1", "x", "1.5", "99999999999999999999", "0x1", "1 2", "１", "1;2"] {
        assert_eq!(status_after(&app.client(), &path, bad).await, 400, "Last-Event-ID: {bad}");
        let query = format!("{path}?after={}", bad.replace(' ', "%20"));
        app.client().get(&query).await.problem(400);
    }
    app.client().get(&format!("{path}?since=1")).await.problem(400);
    let reader = |after: u64| Reader::new(&app.client(), &path, Cut::End).after(after);
    assert_eq!(reader(0).rest().await.len() as u64, last);
    assert_eq!(reader(last - 1).rest().await.len(), 1);
    assert_eq!(app.client().get(&format!("{path}?after={last}")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_older_than_the_kept_events_gets_resync() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    let (run, last) = ended_run(&local).await;
    // Another process on the same file removes what is old, as a later sweep would.
    let file = app.data_folder().join("state.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
    let far = Timestamp::from_millis(i64::MAX);
    assert!(store.purge(far, 3).await.unwrap() > 0);
    let stream = StreamId::new(format!("run/{run}"));
    let state = store.stream(&TenantId::local(), &stream).await.unwrap();
    let first_kept = state.unwrap().extent.first_kept;
    assert!(first_kept > 2 && first_kept <= last, "{first_kept} of {last}");

    let read = async |after: u64| {
        let path = format!("{}?after={after}", local.events_path(&run));
        Reader::new(&local.client, &path, Cut::End).rest().await
    };
    let frames = read(1).await;
    assert_eq!(frames[0].event, "resync", "{frames:?}");
    let kept: Vec<u64> = frames[1..].iter().filter_map(shikiri_testkit::Frame::seq).collect();
    assert!(
        kept.is_empty() || kept == (first_kept..=last).collect::<Vec<_>>(),
        "a gap after resync: {kept:?}"
    );
    // A cursor whose suffix is whole is served as ever.
    let suffix: Vec<u64> = read(first_kept - 1).await.iter().filter_map(|f| f.seq()).collect();
    assert_eq!(suffix, (first_kept..=last).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_and_wrong_page_cursors_are_400() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    for n in 0..7 {
        client.post("/v1/tenants", &json!({ "id": format!("t{n}") })).await.expect(201);
    }
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/tenants?limit=3{cursor}")).await.expect(200);
        for item in page["items"].as_array().unwrap() {
            ids.push(item["id"].as_str().unwrap().to_owned());
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(ids, ["local", "t0", "t1", "t2", "t3", "t4", "t5", "t6"]);
    for bad in [
        "cursor=",
        "cursor=x",
        "cursor=zz.t1",
        "cursor=1.a%20b",
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=100000",
        "sort=name",
        "cursor=%ff",
    ] {
        client.get(&format!("/v1/tenants?{bad}")).await.problem(400);
        client.get(&format!("/v1/tenants/local/runs?{bad}")).await.problem(400);
    }
}
