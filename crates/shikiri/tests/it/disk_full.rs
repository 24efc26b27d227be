//! A full disk: nothing is acknowledged that is not kept, the server says that it is unready, the
//! file stays sound, and everything goes on when there is room again.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use shikiri_testkit::{Cleanup, Client, Cut, TestApp, skip, until};

use crate::PROGRAM;

const SIZE: &str = "6m";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_acknowledges_nothing_and_work_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    if let Err(why) = mount(&disk) {
        return skip("disk full", &why);
    }
    let mounted = disk.clone();
    // Declared before the app, so that it is dropped after it.
    let _unmount = Cleanup::new(move || unmount(&mounted));
    let mut app =
        TestApp::new(PROGRAM).root(&disk).env("SHIKIRI_NODE_LEASE_SECONDS", "1").start().await;
    let client = app.client();
    let pid = app.server().pid();
    let run = app.start_run("long_running_agent", json!({ "steps": 40, "step_ms": 100 })).await;
    let mut tenants = Tenants::default();
    for _ in 0..10 {
        assert_eq!(tenants.make(&client).await, 201);
    }

    let filler = fill(&disk);
    until("a write is refused", async || tenants.make(&client).await == 503).await;
    for _ in 0..20 {
        let _ = tenants.make(&client).await;
    }
    assert!(tenants.refused.len() > 10, "a full disk took {} tenants", tenants.made.len());
    until("/readyz says no", async || ready(&client).await == 503).await;
    assert_eq!(client.get("/healthz").await.status, 200);
    assert_eq!(tenants.missing(&client).await, Vec::<String>::new());
    app.cli().run(&["db", "check"]).done();

    fs::remove_file(&filler).unwrap();
    until("/readyz says yes", async || ready(&client).await == 200).await;
    assert_eq!(tenants.make(&client).await, 201);
    let events = app.local().reader(&run, Cut::End).rest().await;
    let steps = events.iter().filter(|event| event.event == "step_completed").count();
    assert_eq!((steps, events.last().map(|event| event.event.as_str())), (40, Some("result")));
    assert_eq!(app.server().pid(), pid, "the same process all the time");

    assert_eq!(app.terminate().await.0, 0);
    app.cli().run(&["db", "check"]).done();
    app.restart().await;
    assert_eq!(tenants.missing(&app.client()).await, Vec::<String>::new());
    assert_eq!(tenants.leftovers(&app.client()).await, Vec::<String>::new());
    eprintln!(
        "disk full: {} writes acknowledged and kept, {} refused and not there",
        tenants.made.len(),
        tenants.refused.len()
    );
}

/// What was acknowledged, and what was not.
#[derive(Default)]
struct Tenants {
    made: Vec<String>,
    refused: Vec<String>,
}

impl Tenants {
    async fn make(&mut self, client: &Client) -> u16 {
        let id = format!("t{}", self.made.len() + self.refused.len());
        // Pages of its own, so that it does not fit into what is left of another's.
        let prompt = "x".repeat(20_000);
        let answer =
            client.post("/v1/tenants", &json!({ "id": id, "system_prompt": prompt })).await;
        match answer.status {
            201 => self.made.push(id),
            503 => {
                let problem = answer.problem(503);
                assert!(problem["retry_after_ms"].is_u64(), "{problem}");
                self.refused.push(id);
            }
            other => panic!("{other} {}", answer.text()),
        }
        answer.status
    }

    /// Acknowledged and not there.
    async fn missing(&self, client: &Client) -> Vec<String> {
        self.with_status(client, &self.made, 404).await
    }

    /// Refused and there all the same.
    async fn leftovers(&self, client: &Client) -> Vec<String> {
        self.with_status(client, &self.refused, 200).await
    }

    async fn with_status(&self, client: &Client, ids: &[String], status: u16) -> Vec<String> {
        let mut found = Vec::new();
        for id in ids {
            let answer = client.get(&format!("/v1/tenants/{id}")).await;
            assert!(matches!(answer.status, 200 | 404), "{} {}", answer.status, answer.text());
            if answer.status == status {
                found.push(id.clone());
            }
        }
        found
    }
}

async fn ready(client: &Client) -> u16 {
    client.without_key().get("/readyz").await.status
}

/// Takes all the room there is, to the last byte.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("filler");
    File::create(&path).unwrap();
    for size in [1 << 16, 1 << 12, 1 << 8, 1] {
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    path
}

fn mount(disk: &Path) -> Result<(), String> {
    let options = format!("size={SIZE},mode=0755");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &options, "shikiri-test"])
        .arg(disk)
        .output();
    match mounted {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn unmount(disk: &Path) {
    let lazily = Command::new("umount").arg("-l").arg(disk).status();
    if !lazily.is_ok_and(|status| status.success()) {
        eprintln!("could not unmount {}", disk.display());
    }
}
