//! `sessions.json`: in and out.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::Cli;

use super::{ask, cli, exported, on_postgresql, on_sqlite, process};

fn import(cli: &Cli, file: &Path) -> shikiri_testkit::Ended {
    cli.run(&["lanes", "import", file.to_str().unwrap(), "--json"])
}

fn v1() -> Value {
    json!({ "projects": {
        "my-project": {
            "chatgpt": { "url": "https://chatgpt.com/c/abc123" },
            "gemini": { "url": "https://gemini.google.com/app/xyz789", "tabId": 42 },
        },
        "my_project": { "chatgpt": { "url": "https://chatgpt.com/c/second" }, "gemini": null },
        "計画": { "chatgpt": { "url": "https://chatgpt.com/c/third" }, "gemini": null },
    } })
}

/// Rows 0.2, 0.3, 0.13: version 1 in, version 2 out, as often as one likes; the file stays.
#[test]
fn version_1_is_taken_in_and_version_2_given_out() {
    on_sqlite(in_and_out);
}

#[tokio::test(flavor = "multi_thread")]
async fn version_1_is_taken_in_and_version_2_given_out_on_postgresql() {
    on_postgresql("files of lanes", in_and_out).await;
}

fn in_and_out(cli: &Cli, folder: &Path) {
    let file = folder.join("v1.json");
    fs::write(&file, v1().to_string()).unwrap();
    let told = import(cli, &file).done().json();
    let names = ["legacy-my_project", "legacy-my_project-2", "legacy-__"];
    assert_eq!((&told["version"], &told["imported"]), (&json!(1), &json!(names)));
    let first = exported(cli);
    assert_eq!(first["version"], 2);
    let lane = &first["agents"]["legacy-my_project"];
    let at = lane["lastAccess"].as_str().unwrap();
    assert!(at.ends_with('Z') && at.as_bytes()[19] == b'.' && at.len() == 24, "{at}");
    assert_eq!(lane["chatgpt"], json!({ "url": "https://chatgpt.com/c/abc123" }));
    let gemini = json!({ "url": "https://gemini.google.com/app/xyz789", "tabId": 42 });
    assert_eq!(lane["gemini"], gemini);
    assert_eq!(first["agents"]["legacy-my_project-2"]["gemini"], Value::Null);
    assert_eq!(first["config"], json!({ "sessionTtlMinutes": 30, "maxAgents": 10 }));
    let fields: Vec<_> = first.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["agents", "config", "version"]);

    let told = import(cli, &file).done().json();
    assert_eq!((&told["imported"], told["known"].as_array().unwrap().len()), (&json!([]), 3));
    assert_eq!(exported(cli), first);
    assert_eq!(fs::read_to_string(&file).unwrap(), v1().to_string());
    // What was given out is known too.
    let out = folder.join("v2.json");
    cli.run(&["lanes", "export", out.to_str().unwrap()]).done();
    assert_eq!(import(cli, &out).done().json()["imported"], json!([]));
    assert_eq!(exported(cli), first);
    cli.run(&["lanes", "show", "legacy-__"]).done();
    cli.run(&["lanes", "show", "absent"]).refused(4, &["no lane absent", "lanes list"]);

    // Who is declared under the name goes on in the chat.
    let mut agent = process(&cli.clone().env("SHIKIRI_AGENT_ID", "legacy-my_project"), "x");
    assert_eq!(ask(&mut agent, "?")["url"], "https://chatgpt.com/c/abc123");
}

/// Rows 0.2, 0.3: version 2 keeps its names, of any script, beside what is there; a name that is
/// taken gets a number, and no chat changes its owner.
#[test]
fn version_2_is_taken_in_beside_what_is_there() {
    on_sqlite(beside_what_is_there);
}

#[tokio::test(flavor = "multi_thread")]
async fn version_2_is_taken_in_beside_what_is_there_on_postgresql() {
    on_postgresql("a file beside what is there", beside_what_is_there).await;
}

fn beside_what_is_there(cli: &Cli, folder: &Path) {
    let mut client = process(cli, "x");
    let asked = ask(&mut client, "?");
    let lane = asked["lane"].as_str().unwrap();
    let at = exported(cli)["agents"][lane]["lastAccess"].clone();
    let entry = |chat: &str| {
        let url = format!("https://chatgpt.com/c/{chat}");
        json!({ "lastAccess": at, "chatgpt": { "url": url, "tabId": 7 }, "gemini": null })
    };
    let file = folder.join("v2.json");
    let agents = json!({ lane: entry("theirs"), "調査係 👩‍🔬-77": entry("first") });
    let config = json!({ "sessionTtlMinutes": 1, "maxAgents": 1 });
    fs::write(&file, json!({ "version": 2, "agents": agents, "config": config }).to_string())
        .unwrap();
    let told = import(cli, &file).done().json();
    let second = format!("{lane}-2");
    assert_eq!((&told["version"], told["imported"].as_array().unwrap().len()), (&json!(2), 2));
    for _ in 0..2 {
        let lanes = exported(cli);
        assert_eq!(lanes["agents"][&second], agents[lane]);
        assert_eq!(lanes["agents"]["調査係 👩‍🔬-77"], agents["調査係 👩‍🔬-77"]);
        assert_eq!(lanes["agents"].as_object().unwrap().len(), 3);
        assert_eq!(lanes["config"], json!({ "sessionTtlMinutes": 30, "maxAgents": 10 }));
        assert_eq!(ask(&mut client, "again")["url"], asked["url"]);
        // Once more: nothing is new.
        let told = import(cli, &file).done().json();
        assert_eq!((&told["imported"], told["known"].as_array().unwrap().len()), (&json!([]), 2));
    }
}

/// A file is taken whole or not at all, and one is told why.
#[test]
fn a_broken_file_is_refused_as_a_whole() {
    on_sqlite(broken_files);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_is_refused_as_a_whole_on_postgresql() {
    on_postgresql("broken files of lanes", broken_files).await;
}

fn broken_files(cli: &Cli, folder: &Path) {
    cli.run(&["lanes", "clean"]).done();
    let empty = exported(cli);
    let file = folder.join("sessions.json");
    let good = json!({ "chatgpt": { "url": "https://chatgpt.com/c/1" } });
    for (bad, word) in [
        (json!({ "version": 2, "agents": { "a": good, "b": 5 } }), "agents.b"),
        (
            json!({ "version": 2, "agents": { "a": good, "b": { "chatgpt": 5 } } }),
            "agents.b.chatgpt",
        ),
        (json!({ "projects": { "a": good, "計画": { "gemini": { "url": "x" } } } }), "計画"),
        (json!({ "version": 9 }), "version is 9"),
        (json!("x"), "not an object"),
    ] {
        fs::write(&file, bad.to_string()).unwrap();
        import(cli, &file).refused(2, &[word]);
        assert_eq!(exported(cli), empty);
    }
    fs::write(&file, b"\xff\xfe").unwrap();
    import(cli, &file).refused(1, &["UTF-8"]);
    fs::write(&file, "{").unwrap();
    import(cli, &file).refused(2, &["not JSON"]);
    import(cli, Path::new("/etc/hostname")).refused(2, &["no sessions file"]);
    import(cli, &folder.join("nowhere")).refused(4, &["nowhere"]);
    // A start page is no chat: left out, and told.
    let start = json!({ "projects": { "a": { "chatgpt": { "url": "https://chatgpt.com/" } } } });
    fs::write(&file, start.to_string()).unwrap();
    let taken = import(cli, &file).done();
    assert!(taken.stderr.contains("no chat"), "{}", taken.stderr);
    assert_eq!(exported(cli)["agents"]["legacy-a"]["chatgpt"], Value::Null);
}

/// Ten thousand chats are taken in at once; more than the limit of lanes, all the same.
#[test]
fn a_huge_file_is_taken_in() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let entry = |n: u32| {
        let url = format!("https://chatgpt.com/c/{n}");
        (format!("名前 {}", n % 5_000 + n), json!({ "chatgpt": { "url": url } }))
    };
    let projects: serde_json::Map<String, Value> = (0..10_000).map(entry).collect();
    let count = projects.len();
    let file = folder.path().join("huge.json");
    fs::write(&file, json!({ "projects": projects }).to_string()).unwrap();
    let told = import(&cli, &file).done().json();
    assert_eq!(told["imported"].as_array().unwrap().len(), count);
    assert_eq!(exported(&cli)["agents"].as_object().unwrap().len(), count);
    assert_eq!(import(&cli, &file).done().json()["known"].as_array().unwrap().len(), count);
}

/// A file in the data folder is taken in at start and kept under another name, also by several at
/// once; a broken one stays where it is, and does no harm.
#[test]
fn a_file_that_is_found_at_start_is_taken_in_once() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let data = folder.path().join(".shikiri");
    fs::create_dir(&data).unwrap();
    let (file, kept) = (data.join("sessions.json"), data.join("sessions.json.imported"));
    fs::write(&file, "{ broken").unwrap();
    let mut client = process(&cli, "x");
    let (code, errors) = client.end();
    assert!(code == 0 && errors.contains("was not imported"), "{errors}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "{ broken");

    fs::write(&file, v1().to_string()).unwrap();
    let mut starts: Vec<_> = (0..4).map(|_| process(&cli, "x")).collect();
    for client in &mut starts {
        assert_eq!(client.end().0, 0);
    }
    assert!(!file.exists());
    assert_eq!(fs::read_to_string(&kept).unwrap(), v1().to_string());
    assert_eq!(exported(&cli)["agents"].as_object().unwrap().len(), 3);
}
